#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/job_text.h"
#include "proto/message_print.h"

namespace penstock::client {
namespace {

constexpr int kPageSize = 500;
constexpr int64_t kDefaultLimit = 100, kMaxLimit = 1'000'000;

// Those of the API, all that there are.
std::vector<std::string> StateNames() {
  std::vector<std::string> names;
  const google::protobuf::EnumDescriptor& states = *v1::JobState_descriptor();
  for (int i = 0; i < states.value_count(); ++i) {
    if (states.value(i)->number() == v1::JOB_STATE_UNSPECIFIED) continue;
    names.push_back(ShortEnumName(states, states.value(i)->number()));
  }
  return names;
}

struct JobsOptions {
  std::vector<std::string> states;
  std::string owner;
  std::string sweep;
  int64_t limit = 0;  // 0: kDefaultLimit, of a sweep all
};

ExitCode Jobs(const Context& context, const JobsOptions& options, RpcClient& client) {
  v1::ListJobsRequest request;
  for (const std::string& state : options.states) {
    v1::JobState value = v1::JOB_STATE_UNSPECIFIED;
    v1::JobState_Parse(absl::StrCat("JOB_STATE_", absl::AsciiStrToUpper(state)), &value);
    request.add_states(value);
  }
  request.set_owner(options.owner);
  if (!options.sweep.empty()) request.set_sweep(SweepName(options.sweep));
  int64_t limit = options.limit;
  if (limit == 0) limit = options.sweep.empty() ? kDefaultLimit : kMaxLimit;
  v1::ListJobsResponse all;
  while (all.jobs_size() < limit) {
    request.set_page_size(
        static_cast<int32_t>(std::min<int64_t>(kPageSize, limit - all.jobs_size())));
    absl::StatusOr<v1::ListJobsResponse> page =
        client.Call(client.jobs(), &v1::JobService::Stub::ListJobs, request);
    if (!page.ok()) return context.Fail(page.status());
    for (v1::Job& job : *page->mutable_jobs()) *all.add_jobs() = std::move(job);
    all.set_next_page_token(page->next_page_token());
    if (page->next_page_token().empty()) break;
    request.set_page_token(page->next_page_token());
  }
  if (!all.next_page_token().empty()) {
    PrintTalk(absl::StrCat("these are the newest ", limit, "; more with --limit\n"));
  }
  return context.Print(all, [&] { return JobsTable(all.jobs()); });
}

}  // namespace

void AddJobs(CLI::App& app, Context& context) {
  auto options = std::make_shared<JobsOptions>();
  CLI::App* command = app.add_subcommand("jobs", "List jobs, newest first");
  command->add_option("--state", options->states, "Only jobs in this state; may be repeated")
      ->allow_extra_args(false)
      ->check(CLI::IsMember(StateNames()));
  command->add_option("--owner", options->owner, "Only jobs of this user");
  command->add_option("--sweep", options->sweep, "Only jobs of this sweep");
  command
      ->add_option("--limit", options->limit,
                   absl::StrCat("Most jobs to list; default ", kDefaultLimit, ", of a sweep all"))
      ->check(CLI::Range(int64_t{1}, kMaxLimit));
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Jobs(context, *options, client); });
}

}  // namespace penstock::client
