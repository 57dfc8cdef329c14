#include "engine/cuda/cudnn_attention.h"

#include <cudnn_frontend.h>

#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/cuda/cudnn_library.h"
#include "engine/cuda/handle.h"

namespace penstock::cuda {
namespace {

namespace graph = cudnn_frontend::graph;
using cudnn_frontend::DataType_t;
using Tensor = std::shared_ptr<graph::Tensor_attributes>;
using CudnnHandle = Handle<cudnnHandle_t, cudnnDestroy>;

// A graph's names for its arrays.
enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLse,
  kDout,
  kDq,
  kDk,
  kDv,
  kQueryCounts,
  kKeyCounts,
  kQOffsets,
  kKOffsets,
  kVOffsets,
  kOutOffsets,
  kLseOffsets,
  kDqOffsets,
  kDkOffsets,
  kDvOffsets,
};

struct Plan {
  graph::Graph graph;
  int64_t workspace_bytes = 0;
};

// Adds the arrays of one shape to a graph.
class GraphBuilder {
 public:
  GraphBuilder(const CudnnAttentionShape& shape, graph::Graph& graph)
      : shape_(shape), graph_(graph) {
    graph.set_io_data_type(DataType_t::BFLOAT16)
        .set_intermediate_data_type(DataType_t::FLOAT)
        .set_compute_data_type(DataType_t::FLOAT);
  }

  void AddForward() {
    graph::SDPA_attributes options;
    options.set_name("attention").set_generate_stats(true);
    SetCommon(options);
    auto [out, lse] =
        graph_.sdpa(Queries(kQ, shape_.q_stride, kQOffsets), Keys(kK, shape_.k_stride, kKOffsets),
                    Keys(kV, shape_.v_stride, kVOffsets), options);
    MakeOutput(out, Describe(kOut, shape_.num_heads, shape_.longest, shape_.out_stride),
               Offsets(kOutOffsets));
    MakeOutput(lse, DescribeLse(), Offsets(kLseOffsets));
  }

  void AddBackward() {
    graph::SDPA_backward_attributes options;
    options.set_name("attention_backward").set_deterministic_algorithm(true);
    SetCommon(options);
    const Tensor out_offsets = Offsets(kOutOffsets);
    auto out = Describe(kOut, shape_.num_heads, shape_.longest, shape_.out_stride);
    auto dout = Describe(kDout, shape_.num_heads, shape_.longest, shape_.out_stride);
    auto lse = DescribeLse();
    auto [dq, dk, dv] = graph_.sdpa_backward(
        Queries(kQ, shape_.q_stride, kQOffsets), Keys(kK, shape_.k_stride, kKOffsets),
        Keys(kV, shape_.v_stride, kVOffsets), graph_.tensor(out.set_ragged_offset(out_offsets)),
        graph_.tensor(dout.set_ragged_offset(out_offsets)),
        graph_.tensor(lse.set_ragged_offset(Offsets(kLseOffsets))), options);
    MakeOutput(dq, Describe(kDq, shape_.num_heads, shape_.longest, shape_.dq_stride),
               Offsets(kDqOffsets));
    MakeOutput(dk, Describe(kDk, shape_.num_kv_heads, shape_.longest, shape_.dk_stride),
               Offsets(kDkOffsets));
    MakeOutput(dv, Describe(kDv, shape_.num_kv_heads, shape_.longest, shape_.dv_stride),
               Offsets(kDvOffsets));
  }

 private:
  template <typename Options>
  void SetCommon(Options& options) {
    options.set_attn_scale(shape_.scale)
        .set_padding_mask(true)
        .set_seq_len_q(Counts(kQueryCounts))
        .set_seq_len_kv(Counts(kKeyCounts));
    if (!shape_.causal) return;
    options.set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    if (shape_.window > 0) {
      options.set_diagonal_band_left_bound(static_cast<int>(shape_.window));
    }
  }

  Tensor Counts(Uid uid) {
    return graph_.tensor(graph::Tensor_attributes()
                             .set_uid(uid)
                             .set_dim({shape_.batch, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(DataType_t::INT32));
  }
  Tensor Offsets(Uid uid) {
    return graph_.tensor(graph::Tensor_attributes()
                             .set_uid(uid)
                             .set_dim({shape_.batch + 1, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(DataType_t::INT64));
  }
  // [batch, heads, rows, head_dim]; the stride over documents is never used, as they are ragged.
  graph::Tensor_attributes Describe(Uid uid, int64_t heads, int64_t rows, int64_t stride) const {
    graph::Tensor_attributes tensor;
    tensor.set_uid(uid)
        .set_dim({shape_.batch, heads, rows, shape_.head_dim})
        .set_stride({rows * stride, shape_.head_dim, stride, 1})
        .set_data_type(DataType_t::BFLOAT16);
    return tensor;
  }
  graph::Tensor_attributes DescribeLse() const {
    graph::Tensor_attributes tensor;
    tensor.set_uid(kLse)
        .set_dim({shape_.batch, shape_.num_heads, shape_.longest, 1})
        .set_stride({shape_.longest * shape_.lse_stride, 1, shape_.lse_stride, 1})
        .set_data_type(DataType_t::FLOAT);
    return tensor;
  }
  Tensor Queries(Uid uid, int64_t stride, Uid offsets) {
    auto tensor = Describe(uid, shape_.num_heads, shape_.longest, stride);
    return graph_.tensor(tensor.set_ragged_offset(Offsets(offsets)));
  }
  Tensor Keys(Uid uid, int64_t stride, Uid offsets) {
    auto tensor = Describe(uid, shape_.num_kv_heads, shape_.longest, stride);
    return graph_.tensor(tensor.set_ragged_offset(Offsets(offsets)));
  }
  static void MakeOutput(const Tensor& tensor, const graph::Tensor_attributes& like,
                         const Tensor& offsets) {
    tensor->set_output(true)
        .set_uid(like.get_uid())
        .set_dim(like.get_dim())
        .set_stride(like.get_stride())
        .set_data_type(like.get_data_type())
        .set_ragged_offset(offsets);
  }

  const CudnnAttentionShape& shape_;
  graph::Graph& graph_;
};

absl::Status FrontendStatus(cudnn_frontend::error_t error, absl::StatusCode code) {
  if (error.is_good()) [[likely]] {
    return absl::OkStatus();
  }
  return Error(
      code,
      code == absl::StatusCode::kUnimplemented ? reason::kFeatureUnsupported : reason::kInternal,
      absl::StrCat("cuDNN attention: ", error.get_message()));
}

absl::StatusOr<std::unique_ptr<Plan>> BuildPlan(cudnnHandle_t handle,
                                                const CudnnAttentionShape& shape) {
  constexpr absl::StatusCode kRefused = absl::StatusCode::kUnimplemented;
  auto plan = std::make_unique<Plan>();
  GraphBuilder builder(shape, plan->graph);
  shape.backward ? builder.AddBackward() : builder.AddForward();
  graph::Graph& graph = plan->graph;
  PENSTOCK_RETURN_IF_ERROR(FrontendStatus(graph.validate(), kRefused));
  PENSTOCK_RETURN_IF_ERROR(FrontendStatus(graph.build_operation_graph(handle), kRefused));
  PENSTOCK_RETURN_IF_ERROR(
      FrontendStatus(graph.create_execution_plans({cudnn_frontend::HeurMode_t::A}), kRefused));
  PENSTOCK_RETURN_IF_ERROR(FrontendStatus(graph.check_support(handle), kRefused));
  PENSTOCK_RETURN_IF_ERROR(FrontendStatus(graph.build_plans(handle), kRefused));
  PENSTOCK_RETURN_IF_ERROR(
      FrontendStatus(graph.get_workspace_size(plan->workspace_bytes), kRefused));
  return plan;
}

class LoadedCudnnAttention final : public CudnnAttention {
 public:
  explicit LoadedCudnnAttention(CudnnHandle handle) : handle_(std::move(handle)) {}

  absl::StatusOr<int64_t> Prepare(const CudnnAttentionShape& shape) override {
    const auto found = plans_.find(shape);
    const auto& plan = found != plans_.end() ? found->second : Build(shape);
    if (!plan.ok()) return plan.status();
    return (*plan)->workspace_bytes;
  }

  absl::Status Run(const CudnnAttentionShape& shape, const CudnnAttentionArrays& arrays,
                   void* workspace) override {
    const auto found = plans_.find(shape);
    if (found == plans_.end() || !found->second.ok()) {
      return Error(absl::StatusCode::kInternal, reason::kInternal,
                   "cuDNN attention: a shape was run without Prepare()");
    }
    // A new map at each call: the frontend adds the workspace's arrays, and keeps those it finds.
    std::unordered_map<int64_t, void*> pointers = Pointers(shape.backward, arrays);
    return FrontendStatus((*found->second)->graph.execute(handle_.get(), pointers, workspace),
                          absl::StatusCode::kInternal);
  }

 private:
  const absl::StatusOr<std::unique_ptr<Plan>>& Build(const CudnnAttentionShape& shape) {
    absl::StatusOr<std::unique_ptr<Plan>> plan;
    try {
      plan = BuildPlan(handle_.get(), shape);
    } catch (const std::exception& error) {
      plan = Error(absl::StatusCode::kUnimplemented, reason::kFeatureUnsupported,
                   absl::StrCat("cuDNN attention: ", error.what()));
    }
    if (!plan.ok() && !said_) {
      said_ = true;
      std::fprintf(stderr, "a shape of attention runs on built-in kernels: %s\n",
                   std::string(plan.status().message()).c_str());
    }
    return plans_.emplace(shape, std::move(plan)).first->second;
  }

  static std::unordered_map<int64_t, void*> Pointers(bool backward,
                                                     const CudnnAttentionArrays& arrays) {
    std::unordered_map<int64_t, void*> pointers;
    const auto set = [&pointers](Uid uid, const void* array) {
      pointers.emplace(uid, const_cast<void*>(array));
    };
    set(kQ, arrays.q), set(kK, arrays.k), set(kV, arrays.v);
    set(kOut, arrays.out), set(kLse, arrays.lse);
    set(kQueryCounts, arrays.q_counts), set(kKeyCounts, arrays.k_counts);
    set(kQOffsets, arrays.q_offsets), set(kKOffsets, arrays.k_offsets);
    set(kVOffsets, arrays.v_offsets), set(kOutOffsets, arrays.out_offsets);
    set(kLseOffsets, arrays.lse_offsets);
    if (!backward) return pointers;
    set(kDout, arrays.dout), set(kDq, arrays.dq), set(kDk, arrays.dk), set(kDv, arrays.dv);
    set(kDqOffsets, arrays.dq_offsets), set(kDkOffsets, arrays.dk_offsets);
    set(kDvOffsets, arrays.dv_offsets);
    return pointers;
  }

  CudnnHandle handle_;
  bool said_ = false;  // that a shape was refused
  std::map<CudnnAttentionShape, absl::StatusOr<std::unique_ptr<Plan>>> plans_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::Create(cudaStream_t stream) {
  PENSTOCK_RETURN_IF_ERROR(LoadCudnn());
  const auto version = static_cast<int64_t>(cudnnGetVersion());
  if (version < kOldestVersion) {
    return Error(absl::StatusCode::kUnavailable, reason::kFeatureUnsupported,
                 absl::StrCat("cuDNN has version ", version, ", wanted at least ", kOldestVersion,
                              "; install a newer one"));
  }
  cudnnHandle_t raw = nullptr;
  PENSTOCK_RETURN_IF_ERROR(CudnnStatus(cudnnCreate(&raw), "cudnnCreate"));
  CudnnHandle handle(raw);
  PENSTOCK_RETURN_IF_ERROR(CudnnStatus(cudnnSetStream(raw, stream), "cudnnSetStream"));
  return std::make_unique<LoadedCudnnAttention>(std::move(handle));
}

}  // namespace penstock::cuda
