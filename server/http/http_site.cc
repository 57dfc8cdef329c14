#include "server/http/http_site.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "nlohmann/json.hpp"
#include "server/http/metrics_page.h"
#include "server/http/web_files.h"
#include "server/jobs/metric_store.h"
#include "server/jobs/request_checks.h"
#include "server/store/job_state.h"
#include "server/store/log_file.h"

namespace penstock::server {
namespace {

constexpr int64_t kMaxJobsOfAPage = 200;
constexpr int64_t kMaxPoints = 2000;
constexpr int64_t kLogBytes = 64 << 10;
constexpr int64_t kMaxExamples = 20;
constexpr int kMaxInspections = 4;

absl::Status NoSuchPath(const std::string& target) {
  const std::string found = ValidUtf8(target.substr(0, 200));
  return Error(
      absl::StatusCode::kNotFound, reason::kRequestInvalid,
      absl::StrCat("nothing is at ", found, "; there are /, /healthz, /readyz, /metrics and /api/"),
      {{"field", "path"}, {"found", found}});
}

// A number of the query; `otherwise` if it is not given.
absl::StatusOr<int64_t> Number(const HttpTarget& target, const std::string& name, int64_t otherwise,
                               int64_t low, int64_t high) {
  const auto found = target.query.find(name);
  if (found == target.query.end()) return otherwise;
  int64_t value = 0;
  if (absl::SimpleAtoi(found->second, &value) && value >= low && value <= high) return value;
  const std::string expected = absl::StrCat("a number from ", low, " to ", high);
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat(name, " is ", found->second, "; expected ", expected),
               {{"field", name}, {"found", found->second}, {"expected", expected}});
}

std::string Text(const HttpTarget& target, const std::string& name) {
  const auto found = target.query.find(name);
  return found == target.query.end() ? "" : found->second;
}

// Of a message, or of the error that came instead.
template <typename Message>
void Reply(const HttpRespond& respond, absl::StatusOr<Message> message) {
  respond([message = std::move(message)] {
    return message.ok() ? JsonResponse(*message) : ErrorResponse(message.status());
  });
}

HttpResponse PlainText(int status, const std::string& text) {
  return {.status = status, .content_type = "text/plain; charset=utf-8", .body = text + "\n"};
}

HttpResponse LogText(int32_t attempt, const absl::StatusOr<LogBatch>& batch) {
  if (!batch.ok()) return ErrorResponse(batch.status());
  const nlohmann::json log = {
      {"attempt", attempt}, {"nextOffset", batch->next_offset}, {"lines", batch->lines}};
  return {.status = 200,
          .content_type = "application/json; charset=utf-8",
          .body = log.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

}  // namespace

const std::vector<HttpSite::Route>& HttpSite::Routes() {
  static const auto* const routes = new std::vector<Route>{
      {{"healthz"}, Access::kEverybody, &HttpSite::Health},
      {{"readyz"}, Access::kEverybody, &HttpSite::Ready},
      {{"metrics"}, Access::kCallers, &HttpSite::Metrics},
      {{"api", "server"}, Access::kCallers, &HttpSite::Server},
      {{"api", "devices"}, Access::kCallers, &HttpSite::Devices},
      {{"api", "jobs"}, Access::kCallers, &HttpSite::Jobs},
      {{"api", "jobs", "*"}, Access::kCallers, &HttpSite::Job},
      {{"api", "jobs", "*", "metrics"}, Access::kCallers, &HttpSite::JobMetrics},
      {{"api", "jobs", "*", "log"}, Access::kCallers, &HttpSite::JobLog},
      {{"api", "jobs", "*", "checkpoints"}, Access::kCallers, &HttpSite::JobCheckpoints},
      {{"api", "jobs", "*", "data"}, Access::kCallers, &HttpSite::JobData},
  };
  return *routes;
}

void HttpSite::Handle(const HttpRequest& request, HttpRespond respond) const {
  const auto refuse = [&respond](const absl::Status& why) {
    respond([why] { return ErrorResponse(why); });
  };
  absl::StatusOr<HttpTarget> target = ParseTarget(request.target);
  if (!target.ok()) return refuse(target.status());
  const auto fits = [&](const Route& route) {
    return std::equal(route.path.begin(), route.path.end(), target->path.begin(),
                      target->path.end(), [](std::string_view expected, const std::string& found) {
                        return expected == "*" || expected == found;
                      });
  };
  const auto route = std::find_if(Routes().begin(), Routes().end(), fits);
  Call call{.target = *std::move(target), .job = {}, .caller = {}, .respond = std::move(respond)};
  if (route == Routes().end()) {
    if (FindWebFile(call.target.path) != nullptr) return WebFile(call);
    return call.respond([why = NoSuchPath(request.target)] { return ErrorResponse(why); });
  }
  if (route->access == Access::kCallers && gate_ != nullptr) {
    absl::StatusOr<v1::Caller> caller = gate_(request.authorization);
    if (!caller.ok()) return call.respond([why = caller.status()] { return ErrorResponse(why); });
    call.caller = *std::move(caller);
  }
  if (route->path.size() > 2) {
    call.job = "jobs/" + call.target.path[2];
    const absl::Status form = CheckJobName(call.job, "name");
    if (!form.ok()) return call.respond([form] { return ErrorResponse(form); });
  }
  (this->*route->answer)(call);
}

// ---- For everybody ----

void HttpSite::Health(const Call& call) const {
  call.respond([] { return PlainText(200, "ok"); });
}

void HttpSite::Ready(const Call& call) const {
  services_.control.Post([this, call] {
    const bool open = services_.workers.admission() == Admission::kOpen;
    call.respond([open] { return PlainText(open ? 200 : 503, open ? "ready" : "draining"); });
  });
}

void HttpSite::WebFile(const Call& call) const {
  const struct WebFile& file = *FindWebFile(call.target.path);
  call.respond([&file] {
    return HttpResponse{.status = 200,
                        .content_type = std::string(file.content_type),
                        .body = std::string(file.bytes)};
  });
}

// ---- For callers ----

void HttpSite::Metrics(const Call& call) const {
  metrics_.Collect([respond = call.respond](MetricsSnapshot snapshot) {
    respond([snapshot = std::move(snapshot)] {
      return HttpResponse{.status = 200,
                          .content_type = "text/plain; version=0.0.4; charset=utf-8",
                          .body = MetricsPage(snapshot)};
    });
  });
}

void HttpSite::Server(const Call& call) const {
  services_.control.Post([this, call] {
    v1::GetServerInfoResponse info = services_.server_info;
    services_.manager.Describe(info);
    *info.mutable_caller() = call.caller;
    Reply<v1::GetServerInfoResponse>(call.respond, std::move(info));
  });
}

void HttpSite::Devices(const Call& call) const {
  services_.control.Post([this, call] {
    Reply<v1::ListDevicesResponse>(call.respond, services_.manager.ListDevices());
  });
}

void HttpSite::Jobs(const Call& call) const {
  const auto size = Number(call.target, "page_size", 50, 1, kMaxJobsOfAPage);
  if (!size.ok()) return Reply<v1::ListJobsResponse>(call.respond, size.status());
  v1::ListJobsRequest request;
  request.set_page_size(static_cast<int32_t>(*size));
  request.set_page_token(Text(call.target, "page_token"));
  v1::ListJobsResponse response;
  const absl::Status listed = services_.manager.List(request, response);
  if (!listed.ok()) return Reply<v1::ListJobsResponse>(call.respond, listed);
  Reply<v1::ListJobsResponse>(call.respond, std::move(response));
}

void HttpSite::Job(const Call& call) const {
  WithJob(call,
          [call](const v1::GetJobResponse& job) { Reply<v1::GetJobResponse>(call.respond, job); });
}

void HttpSite::WithJob(const Call& call,
                       std::function<void(const v1::GetJobResponse&)> work) const {
  v1::GetJobRequest request;
  request.set_name(call.job);
  const auto job = services_.manager.Get(request);
  if (!job.ok()) return Reply<v1::GetJobResponse>(call.respond, job.status());
  work(*job);
}

void HttpSite::JobMetrics(const Call& call) const {
  const auto first = Number(call.target, "first_step", 0, 0, INT64_MAX);
  const auto last = Number(call.target, "last_step", 0, 0, INT64_MAX);
  const auto points = Number(call.target, "max_points", 500, 1, kMaxPoints);
  for (const auto* number : {&first, &last, &points}) {
    if (!number->ok()) return Reply<v1::ListJobMetricsResponse>(call.respond, number->status());
  }
  const MetricRange range{.first_step = *first, .last_step = *last, .max_points = *points};
  WithJob(call, [this, call, range](const v1::GetJobResponse& /*job*/) {
    services_.streams.Post([this, call, range] {
      auto read = ReadMetricRange(services_.directory.Metrics(call.job), range);
      if (!read.ok()) return Reply<v1::ListJobMetricsResponse>(call.respond, read.status());
      v1::ListJobMetricsResponse response;
      for (v1::StepMetrics& point : *read) *response.add_points() = std::move(point);
      Reply<v1::ListJobMetricsResponse>(call.respond, std::move(response));
    });
  });
}

// Without `attempt`: of the newest. Without `offset`: the last lines.
void HttpSite::JobLog(const Call& call) const {
  const auto attempt = Number(call.target, "attempt", 0, 1, INT32_MAX);
  const auto offset = Number(call.target, "offset", -1, 0, INT64_MAX);
  for (const auto* number : {&attempt, &offset}) {
    if (!number->ok()) return Reply<v1::GetJobResponse>(call.respond, number->status());
  }
  WithJob(call, [this, call, asked = static_cast<int32_t>(*attempt),
                 offset = *offset](const v1::GetJobResponse& job) {
    const int32_t newest = std::max(1, job.job().attempt());
    services_.streams.Post([this, call, attempt = asked > 0 ? asked : newest, offset] {
      const std::string path = services_.directory.Log(call.job, attempt);
      const int64_t start = offset >= 0 ? offset : std::max<int64_t>(0, FileSize(path) - kLogBytes);
      absl::StatusOr<LogBatch> batch =
          ReadLog(path, static_cast<uint64_t>(start), kLogBytes, LogTail::kMayGrow);
      // A start that nobody asked for lies in the middle of a line.
      if (batch.ok() && offset < 0 && start > 0 && !batch->lines.empty()) {
        batch->lines.erase(batch->lines.begin());
      }
      call.respond([attempt, batch = std::move(batch)] { return LogText(attempt, batch); });
    });
  });
}

void HttpSite::JobCheckpoints(const Call& call) const {
  services_.control.Post([this, call] {
    v1::ListCheckpointsRequest request;
    request.set_parent(call.job);
    request.set_page_size(1000);
    Reply<v1::ListCheckpointsResponse>(call.respond, services_.checkpoints.List(request));
  });
}

// As slow as reading the job's data; one at a time, among the InspectData calls.
void HttpSite::JobData(const Call& call) const {
  const auto examples = Number(call.target, "examples", 5, 0, kMaxExamples);
  if (!examples.ok()) return Reply<v1::InspectDataResponse>(call.respond, examples.status());
  WithJob(call, [this, call, examples = *examples](const v1::GetJobResponse& job) {
    if (!job.job().has_train()) {
      return Reply<v1::InspectDataResponse>(
          call.respond, Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
                              absl::StrCat(call.job, " is an export and has no data")));
    }
    v1::InspectDataRequest inspection;
    *inspection.mutable_spec() = job.job().train();
    inspection.set_examples(static_cast<int32_t>(examples));
    if (++inspections_ > kMaxInspections) {
      --inspections_;
      return Reply<v1::InspectDataResponse>(
          call.respond, Error(absl::StatusCode::kResourceExhausted, reason::kTooManyStreams,
                              "the data of other jobs are being read; try again later"));
    }
    services_.inspection.Post([this, call, inspection] {
      const auto go_on = [this](double) { return !stopping_; };
      Reply<v1::InspectDataResponse>(
          call.respond,
          go_on(0)
              ? services_.inspector(inspection, services_.directory.TokenCache(), go_on)
              : Error(absl::StatusCode::kUnavailable, reason::kServerDraining, "the daemon stops"));
      --inspections_;
    });
  });
}

}  // namespace penstock::server
