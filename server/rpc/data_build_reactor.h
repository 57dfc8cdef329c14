// One BuildData stream: how far the work is, when the client is ready to hear it, then the result.
// One message in flight and no queue, so a client that does not read costs nothing.
//
//   kIdle --Report--> kWriting --OnWriteDone--> kIdle --End--> kFinished
//                        +--End, then OnWriteDone-----------------^
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "penstock/v1/job.pb.h"
#include "server/access/call.h"

namespace penstock::server {

// Owns itself until gRPC is done with it, which is not before End().
class DataBuildReactor final : public grpc::ServerWriteReactor<v1::BuildDataResponse> {
 public:
  explicit DataBuildReactor(grpc::CallbackServerContext* context) : context_(context) {}

  // False if nobody waits for the result any more. The working thread only.
  bool Report(double fraction);
  // Ends the stream with the result, or its error. Once, after the last Report().
  void End(absl::StatusOr<v1::InspectDataResponse> result);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { abandoned_ = true; }
  void OnDone() override { delete this; }

 private:
  enum class Phase : uint8_t { kIdle, kWriting, kFinished };

  bool Abandoned() const;
  void FinishWithResult();

  grpc::CallbackServerContext* const context_;
  const std::shared_ptr<Call> call_ = CurrentCall();
  std::atomic<bool> abandoned_ = false;
  double reported_ = -1;           // the working thread's
  v1::BuildDataResponse message_;  // belongs to gRPC in kWriting

  std::mutex mutex_;
  // Guarded by mutex_.
  Phase phase_ = Phase::kIdle;
  std::optional<absl::StatusOr<v1::InspectDataResponse>> result_;
};

}  // namespace penstock::server
