#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "client/commands/commands.h"
#include "client/job_text.h"
#include "client/loss_plot.h"

namespace penstock::client {
namespace {

struct MetricsOptions {
  std::string job;
  int64_t first = 0;
  int64_t last = 0;
  int32_t max_points = 0;
  bool plot = false;
};

constexpr int kMostPlotRows = 20;

std::string Plot(const v1::ListJobMetricsResponse& response) {
  const TerminalSize size = SizeOfTerminal(STDOUT_FILENO);
  return LossPlot(response.points(), {.width = size.columns,
                                      .height = std::min(size.rows - 4, kMostPlotRows),
                                      .dots = DotsForLocale(),
                                      .color = MayColor()});
}

ExitCode Metrics(const Context& context, const MetricsOptions& options, RpcClient& client) {
  v1::ListJobMetricsRequest request;
  request.set_name(JobName(options.job));
  request.set_first_step(options.first);
  request.set_last_step(options.last);
  request.set_max_points(options.max_points);
  const absl::StatusOr<v1::ListJobMetricsResponse> response =
      client.Call(client.jobs(), &v1::JobService::Stub::ListJobMetrics, request);
  if (!response.ok()) return context.Fail(response.status());
  return context.Print(
      *response, [&] { return options.plot ? Plot(*response) : MetricsTable(response->points()); });
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
  command->add_flag("--plot", options->plot, "Draw the losses instead; with -o table only");
  OnConnected(*command, context, [&context, options](RpcClient& client) {
    return Metrics(context, *options, client);
  });
}

}  // namespace penstock::client
