// cuBLASLt is column-major: a row-major product d = a b is its d^T = b^T a^T, so it gets b as
// its first operand and our n as its m. Bias along our n is then along its m, as its epilogue
// wants it.
#include "engine/cuda/matmul.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/cuda/status.h"

namespace penstock::cuda {
namespace {

// Wider alignment does not change which algorithms apply.
constexpr int kWidestAlignment = 16;

int AlignmentOf(const MatmulArgs& args) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(args.a) | reinterpret_cast<uintptr_t>(args.b) |
                         reinterpret_cast<uintptr_t>(args.c) | reinterpret_cast<uintptr_t>(args.d) |
                         kWidestAlignment;
  return static_cast<int>(bits & (~bits + 1));
}

cublasOperation_t OperationOf(Operand operand) {
  return operand == Operand::kTransposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

std::string Text(const MatmulArgs& args) {
  return absl::StrCat("matrix product ", args.m, "x", args.k, " by ", args.k, "x", args.n);
}

template <typename Attribute, typename Value>
absl::Status Set(cublasLtMatmulDesc_t desc, Attribute attribute, const Value& value) {
  return CublasStatus(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)),
                      "cublasLtMatmulDescSetAttribute");
}

// What the library guesses to be fastest is so for a product alone. In a row of them the card is at
// its limit of power, and there tiles of 256x128, which read the least for each sum, are up to 10%
// faster wherever there are waves enough of them (bench/results/2026-11-28-matmul-tiles.md).
constexpr int kCandidates = 8;
constexpr int64_t kLargeTile = 256 * 128;
constexpr int64_t kWavesOfLargeTiles = 4;

absl::StatusOr<bool> FillsLargeTiles(const MatmulArgs& args) {
  int device = 0, processors = 0;
  PENSTOCK_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "cudaGetDevice"));
  PENSTOCK_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
                 "cudaDeviceGetAttribute"));
  return args.m * args.n >= kWavesOfLargeTiles * processors * kLargeTile;
}

bool HasLargeTile(const cublasLtMatmulHeuristicResult_t& candidate) {
  int32_t tile = CUBLASLT_MATMUL_TILE_UNDEFINED;
  size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&candidate.algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile,
                                           sizeof(tile), &written) != CUBLAS_STATUS_SUCCESS) {
    return false;
  }
  return tile == CUBLASLT_MATMUL_TILE_256x128 || tile == CUBLASLT_MATMUL_TILE_128x256;
}

using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <typename Value>
absl::Status Prefer(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
                    Value value) {
  return CublasStatus(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
      "cublasLtMatmulPreferenceSetAttribute");
}

// Of a matrix stored row-major as [rows, cols].
absl::StatusOr<cublasLtMatrixLayout_t> CreateLayout(cudaDataType_t type, int64_t rows,
                                                    int64_t cols) {
  cublasLtMatrixLayout_t layout = nullptr;
  PENSTOCK_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(cols),
                                              static_cast<uint64_t>(rows), cols),
                   "cublasLtMatrixLayoutCreate"));
  return layout;
}

absl::StatusOr<cublasLtMatrixLayout_t> OperandLayout(Operand operand, int64_t rows, int64_t cols) {
  if (operand == Operand::kTransposed) std::swap(rows, cols);
  return CreateLayout(CUDA_R_16BF, rows, cols);
}

}  // namespace

MatmulPlanner::Key MatmulPlanner::KeyOf(const MatmulArgs& args) {
  return {args.m,
          args.n,
          args.k,
          args.a_operand,
          args.b_operand,
          args.result,
          args.bias != nullptr,
          args.c != nullptr,
          AlignmentOf(args)};
}

absl::StatusOr<MatmulPlanner::Plan> MatmulPlanner::MakePlan(const MatmulWorkspace& workspace,
                                                            const MatmulArgs& args, int alignment) {
  Plan plan;
  cublasLtMatmulDesc_t desc = nullptr;
  PENSTOCK_RETURN_IF_ERROR(CublasStatus(
      cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate"));
  plan.desc = MatmulDesc(desc);
  PENSTOCK_RETURN_IF_ERROR(Set(desc, CUBLASLT_MATMUL_DESC_TRANSA, OperationOf(args.b_operand)));
  PENSTOCK_RETURN_IF_ERROR(Set(desc, CUBLASLT_MATMUL_DESC_TRANSB, OperationOf(args.a_operand)));
  if (args.bias != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(Set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
    PENSTOCK_RETURN_IF_ERROR(Set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias));
  }
  const cudaDataType_t type = args.result == Result::kFloat ? CUDA_R_32F : CUDA_R_16BF;
  PENSTOCK_ASSIGN_OR_RETURN(auto a, OperandLayout(args.a_operand, args.m, args.k));
  plan.a = Layout(a);
  PENSTOCK_ASSIGN_OR_RETURN(auto b, OperandLayout(args.b_operand, args.k, args.n));
  plan.b = Layout(b);
  PENSTOCK_ASSIGN_OR_RETURN(auto d, CreateLayout(type, args.m, args.n));
  plan.d = Layout(d);

  cublasLtMatmulPreference_t raw = nullptr;
  PENSTOCK_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatmulPreferenceCreate(&raw), "cublasLtMatmulPreferenceCreate"));
  const Preference preference(raw);
  PENSTOCK_RETURN_IF_ERROR(Prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                  static_cast<size_t>(workspace.bytes)));
  // Parts of a long sum are added in f32, not rounded to bf16 first.
  PENSTOCK_RETURN_IF_ERROR(Prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                  static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    PENSTOCK_RETURN_IF_ERROR(Prefer(preference, attribute, static_cast<uint32_t>(alignment)));
  }
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found = {};
  int count = 0;
  PENSTOCK_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatmulAlgoGetHeuristic(lt_.get(), desc, plan.b.get(), plan.a.get(),
                                                  plan.d.get(), plan.d.get(), preference.get(),
                                                  kCandidates, found.data(), &count),
                   Text(args)));
  if (count == 0) {
    return Error(absl::StatusCode::kUnimplemented, reason::kFeatureUnsupported,
                 absl::StrCat("cuBLASLt has no algorithm for the ", Text(args)));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const bool large, FillsLargeTiles(args));
  const auto end = found.begin() + count;
  const auto best = large ? std::find_if(found.begin(), end, HasLargeTile) : found.begin();
  plan.algo = (best == end ? found.front() : *best).algo;
  return plan;
}

absl::Status MatmulPlanner::Run(cudaStream_t stream, const MatmulWorkspace& workspace,
                                const MatmulArgs& args) {
  const Key key = KeyOf(args);
  auto entry = plans_.find(key);
  if (entry == plans_.end()) {
    PENSTOCK_ASSIGN_OR_RETURN(Plan plan, MakePlan(workspace, args, AlignmentOf(args)));
    entry = plans_.emplace(key, std::move(plan)).first;
  }
  const Plan& plan = entry->second;
  if (args.bias != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(Set(plan.desc.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias));
  }
  const float alpha = 1.0f;
  const float beta = args.c == nullptr ? 0.0f : 1.0f;
  const void* c = args.c == nullptr ? args.d : args.c;
  const cublasStatus_t status =
      cublasLtMatmul(lt_.get(), plan.desc.get(), &alpha, args.b, plan.b.get(), args.a, plan.a.get(),
                     &beta, c, plan.d.get(), args.d, plan.d.get(), &plan.algo, workspace.data,
                     static_cast<size_t>(workspace.bytes), stream);
  // The text is made for a failure only: a step allocates nothing.
  return status == CUBLAS_STATUS_SUCCESS ? absl::OkStatus() : CublasStatus(status, Text(args));
}

}  // namespace penstock::cuda
