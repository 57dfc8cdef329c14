#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "client/commands/commands.h"
#include "client/job_text.h"

namespace penstock::client {
namespace {

struct MetricsOptions {
  std::string job;
  int64_t first = 0;
  int64_t last = 0;
  int32_t max_points = 0;
};

ExitCode Metrics(const Context& context, const MetricsOptions& options, RpcClient& client) {
  v1::ListJobMetricsRequest request;
  request.set_name(JobName(options.job));
  request.set_first_step(options.first);
  request.set_last_step(options.last);
  request.set_max_points(options.max_points);
  const absl::StatusOr<v1::ListJobMetricsResponse> response =
      client.Call(client.jobs(), &v1::JobService::Stub::ListJobMetrics, request);
  if (!response.ok()) return context.Fail(response.status());
  return context.Print(*response, [&] { return MetricsTable(response->points()); });
}

}  // namespace

void AddMetrics(CLI::App& app, Context& context) {
  auto options = std::make_shared<MetricsOptions>();
  CLI::App* command = app.add_subcommand("metrics", "Print the step metrics of a job");
  command->add_option("job", options->job, "Id or name of the job")->required();
  command->add_option("--first", options->first, "First step; 0: from the beginning");
  command->add_option("--last", options->last, "Last step; 0: to the end");
  command->add_option("--max-points", options->max_points,
                      "Thin to at most this many points; 0: 1000");
  OnConnected(*command, context, [&context, options](RpcClient& client) {
    return Metrics(context, *options, client);
  });
}

}  // namespace penstock::client
