// Hidden, else libcudnn's own calls would bind to these definitions.
#pragma GCC visibility push(hidden)
#include <cudnn.h>
#pragma GCC visibility pop

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/cuda/cudnn_library.h"

namespace penstock::cuda {
namespace {

constexpr char kLibrary[] = "libcudnn.so.9";

void* Library() {
  static void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  return library;
}

// Calls the library's function of this name, or returns `otherwise`.
template <typename Result, typename... Args>
Result Call(const char* name, Result otherwise, Args... args) {
  void* const symbol = Library() == nullptr ? nullptr : dlsym(Library(), name);
  if (symbol == nullptr) return otherwise;
  return reinterpret_cast<Result (*)(Args...)>(symbol)(args...);
}

template <typename... Args>
cudnnStatus_t Pass(const char* name, Args... args) {
  return Call<cudnnStatus_t>(name, CUDNN_STATUS_NOT_INITIALIZED, args...);
}

}  // namespace

absl::Status LoadCudnn() {
  if (Library() != nullptr) return absl::OkStatus();
  // The call that failed may lie long back; this one gives its reason again.
  dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  const char* found = dlerror();
  return Error(absl::StatusCode::kUnavailable, reason::kFeatureUnsupported,
               absl::StrCat("cuDNN could not be loaded: ", found == nullptr ? kLibrary : found,
                            "; install cuDNN 9 or add its folder to LD_LIBRARY_PATH"));
}

absl::Status CudnnStatus(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]] {
    return absl::OkStatus();
  }
  const bool memory = status == CUDNN_STATUS_ALLOC_FAILED;
  return Error(memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
               memory ? reason::kDeviceMemoryInsufficient : reason::kInternal,
               absl::StrCat(std::string(what), ": ", cudnnGetErrorString(status)));
}

}  // namespace penstock::cuda

using penstock::cuda::Call;
using penstock::cuda::Pass;

extern "C" {

size_t cudnnGetVersion() { return Call<size_t>("cudnnGetVersion", 0); }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return Call<const char*>("cudnnGetErrorString", "cuDNN is not loaded", status);
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (max_size > 0) message[0] = '\0';
  void* const library = penstock::cuda::Library();
  void* const symbol = library == nullptr ? nullptr : dlsym(library, "cudnnGetLastErrorString");
  if (symbol != nullptr) {
    reinterpret_cast<void (*)(char*, size_t)>(symbol)(message, max_size);
  }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return Pass("cudnnCreate", handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return Pass("cudnnDestroy", handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return Pass("cudnnSetStream", handle, stream);
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  return Pass("cudnnGetStream", handle, stream);
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  return Pass("cudnnBackendCreateDescriptor", type, descriptor);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return Pass("cudnnBackendDestroyDescriptor", descriptor);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return Pass("cudnnBackendFinalize", descriptor);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  return Pass("cudnnBackendSetAttribute", descriptor, name, type, count, elements);
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t* count, void* elements) {
  return Pass("cudnnBackendGetAttribute", descriptor, name, type, requested, count, elements);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  return Pass("cudnnBackendExecute", handle, plan, variant_pack);
}

}  // extern "C"
