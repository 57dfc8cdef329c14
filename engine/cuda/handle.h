// Owners of CUDA objects.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <utility>

#include "absl/status/statusor.h"

namespace penstock::cuda {

// Sole owner of one CUDA object. The destructor ignores a failed destroy: it mostly repeats an
// error that the launch path has returned as a Status already.
template <typename Raw, auto kDestroy>
class Handle {
 public:
  Handle() = default;
  explicit Handle(Raw raw) : raw_(raw) {}
  Handle(Handle&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(raw_, other.raw_);  // `other` destroys what this one held.
    return *this;
  }
  ~Handle() {
    if (raw_ != nullptr) static_cast<void>(kDestroy(raw_));
  }
  Raw get() const { return raw_; }

 private:
  Raw raw_ = nullptr;
};

using Stream = Handle<cudaStream_t, cudaStreamDestroy>;
using Event = Handle<cudaEvent_t, cudaEventDestroy>;
using CublasLt = Handle<cublasLtHandle_t, cublasLtDestroy>;

// Does not wait for the legacy default stream.
absl::StatusOr<Stream> CreateStream();
// Timed: an executor's events order its lanes and give its timeline.
absl::StatusOr<Event> CreateEvent();

}  // namespace penstock::cuda
