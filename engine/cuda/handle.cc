#include "engine/cuda/handle.h"

#include "engine/base/status.h"
#include "engine/cuda/status.h"

namespace penstock::cuda {

absl::StatusOr<Stream> CreateStream() {
  cudaStream_t stream = nullptr;
  PENSTOCK_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                      "cudaStreamCreateWithFlags"));
  return Stream(stream);
}

absl::StatusOr<Event> CreateEvent() {
  cudaEvent_t event = nullptr;
  PENSTOCK_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&event), "cudaEventCreate"));
  return Event(event);
}

}  // namespace penstock::cuda
