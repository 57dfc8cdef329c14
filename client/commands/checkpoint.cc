#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/checkpoint_list.h"
#include "client/commands/commands.h"
#include "client/follow.h"
#include "client/interrupts.h"
#include "client/job_text.h"
#include "engine/base/status.h"
#include "server/status_proto.h"

namespace penstock::client {
namespace {

// The newest checkpoint, if it is of `step` or later.
absl::StatusOr<std::optional<v1::Checkpoint>> FindSaved(RpcClient& client, const std::string& job,
                                                        int64_t step) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse all, ListAllCheckpoints(client, job));
  if (all.checkpoints().empty()) return std::nullopt;
  const v1::Checkpoint& newest = all.checkpoints(all.checkpoints_size() - 1);
  return newest.step() >= step ? std::optional(newest) : std::nullopt;
}

// Nothing if the user has interrupted the waiting.
absl::StatusOr<std::optional<v1::Checkpoint>> WaitForSave(RpcClient& client, const std::string& job,
                                                          const v1::SaveCheckpointResponse& asked) {
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<v1::Checkpoint> saved,
                            FindSaved(client, job, asked.step()));
  if (saved) return saved;
  v1::WatchJobsRequest request;
  request.set_name(job);
  *request.mutable_after() = asked.cursor();
  request.set_follow(true);
  request.add_kinds(v1::WATCH_KIND_CHECKPOINT);
  absl::Status failed;
  const InterruptGuard interrupts;
  const auto on_event = [&](const v1::WatchJobsResponse& event) {
    if (event.has_checkpoint_saved()) saved = event.checkpoint_saved().checkpoint();
    if (event.has_checkpoint_failed()) {
      failed = FromStatusProto(event.checkpoint_failed().error());
    }
  };
  const auto on_tick = [&] {
    return !saved && failed.ok() && interrupts.first() == Interrupt::kNone;
  };
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::optional<v1::Job> ended,
      Follow(client, request,
             {.on_event = on_event, .on_tick = on_tick, .on_lost = [](const absl::Status&) {}}));
  PENSTOCK_RETURN_IF_ERROR(failed);
  if (saved || !ended) return saved;
  return Error(absl::StatusCode::kFailedPrecondition, reason::kJobStateConflict,
               absl::StrCat(job, " has ended (", StateName(ended->state()),
                            ") without another checkpoint; `penstock checkpoints` lists those "
                            "that it has"),
               {{"job", job}});
}

struct SaveOptions {
  std::string job;
  bool no_wait = false;
};

ExitCode Save(const Context& context, const SaveOptions& options, RpcClient& client) {
  v1::SaveCheckpointRequest request;
  request.set_parent(JobName(options.job));
  request.set_request_id(NewRequestId());
  const absl::StatusOr<v1::SaveCheckpointResponse> response =
      client.Call(client.checkpoints(), &v1::CheckpointService::Stub::SaveCheckpoint, request);
  if (!response.ok()) return context.Fail(response.status(), request.request_id());
  if (options.no_wait) {
    return context.Print(*response, [&] {
      return absl::StrCat("asked for a checkpoint of step ", response->step(), " or later\n");
    });
  }
  const absl::StatusOr<std::optional<v1::Checkpoint>> saved =
      WaitForSave(client, request.parent(), *response);
  if (!saved.ok()) return context.Fail(saved.status());
  if (!saved->has_value()) return ExitCode::kInterrupted;
  return context.Print(**saved, [&] { return absl::StrCat((*saved)->name(), "\n"); });
}

ExitCode Pin(const Context& context, const std::string& checkpoint, bool pinned,
             RpcClient& client) {
  v1::PinCheckpointRequest request;
  request.set_name(JobName(checkpoint));
  request.set_pinned(pinned);
  request.set_request_id(NewRequestId());
  const absl::StatusOr<v1::PinCheckpointResponse> response =
      client.Call(client.checkpoints(), &v1::CheckpointService::Stub::PinCheckpoint, request);
  if (!response.ok()) return context.Fail(response.status(), request.request_id());
  return context.Print(response->checkpoint(), [&] {
    return absl::StrCat(response->checkpoint().name(), pinned ? " pinned\n" : " unpinned\n");
  });
}

void AddPinning(CLI::App& app, Context& context, const char* name, const char* help, bool pinned) {
  auto checkpoint = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(name, help);
  command->add_option("checkpoint", *checkpoint, "{job}/checkpoints/{step}")->required();
  OnConnected(*command, context, [&context, checkpoint, pinned](RpcClient& client) {
    return Pin(context, *checkpoint, pinned, client);
  });
}

}  // namespace

void AddCheckpoint(CLI::App& app, Context& context) {
  auto options = std::make_shared<SaveOptions>();
  CLI::App* command = app.add_subcommand(
      "checkpoint", "Make a running job save a checkpoint after its current step; prints its name");
  command->add_option("job", options->job, "Id or name of the job")->required();
  command->add_flag("--no-wait", options->no_wait, "Ask for it and leave");
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Save(context, *options, client); });
}

void AddPin(CLI::App& app, Context& context) {
  AddPinning(app, context, "pin", "Keep a checkpoint whatever newer ones come", true);
  AddPinning(app, context, "unpin", "Let a checkpoint go when newer ones come", false);
}

}  // namespace penstock::client
