#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
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

absl::StatusOr<v1::ListJobMetricsResponse> Points(const v1::ListJobMetricsRequest& request,
                                                  RpcClient& client) {
  return client.Call(client.jobs(), &v1::JobService::Stub::ListJobMetrics, request);
}

// One reply has not the room for all points of a long job.
absl::StatusOr<v1::ListJobMetricsResponse> AllPoints(v1::ListJobMetricsRequest request,
                                                     RpcClient& client) {
  constexpr int64_t kStepsACall = 2000;
  const absl::StatusOr<v1::Job> job = client.GetJob(request.name());
  if (!job.ok()) return job.status();
  int64_t last = job->progress().step();
  if (request.last_step() > 0) last = std::min(last, request.last_step());
  v1::ListJobMetricsResponse all;
  request.set_max_points(kStepsACall);
  for (int64_t first = std::max<int64_t>(request.first_step(), 1); first <= last;
       first += kStepsACall) {
    request.set_first_step(first);
    request.set_last_step(std::min(last, first + kStepsACall - 1));
    const absl::StatusOr<v1::ListJobMetricsResponse> some = Points(request, client);
    if (!some.ok()) return some.status();
    all.MergeFrom(*some);
  }
  return all;
}

ExitCode Metrics(const Context& context, const MetricsOptions& options, RpcClient& client) {
  v1::ListJobMetricsRequest request;
  request.set_name(JobName(options.job));
  request.set_first_step(options.first);
  request.set_last_step(options.last);
  request.set_max_points(options.max_points);
  const bool all = options.max_points == 0 && context.format != Format::kTable;
  const absl::StatusOr<v1::ListJobMetricsResponse> response =
      all ? AllPoints(request, client) : Points(request, client);
  if (!response.ok()) return context.Fail(response.status());
  int64_t skipped = 0;
  for (const v1::StepMetrics& point : response->points()) skipped += point.skipped();
  if (skipped > 0) {
    PrintTalk(absl::StrCat("thinned: ", response->points_size(), " of ",
                           response->points_size() + skipped,
                           " points; more with --max-points, all with -o json\n"));
  }
  return context.Print(
      *response, [&] { return options.plot ? Plot(*response) : MetricsTable(response->points()); });
}

}  // namespace

void AddMetrics(CLI::App& app, Context& context) {
  auto options = std::make_shared<MetricsOptions>();
  CLI::App* command = app.add_subcommand("metrics", "Print the step metrics of a job");
  command->add_option("job", options->job, "Id or name of the job")->required();
  command->add_option("--first", options->first, "From this step on; 0: from the beginning");
  command->add_option("--last", options->last, "Up to this step; 0: to the end");
  command->add_option(
      "--max-points", options->max_points,
      "Thin to at most this many points, 10000 at most; 0: 1000 in a table, with -o "
      "json or yaml all there are");
  command->add_flag("--plot", options->plot, "Draw the losses instead; with -o table only");
  OnConnected(*command, context, [&context, options](RpcClient& client) {
    return Metrics(context, *options, client);
  });
}

}  // namespace penstock::client
