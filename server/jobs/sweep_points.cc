#include "server/jobs/sweep_points.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "engine/base/status.h"
#include "proto/message_file.h"
#include "server/jobs/request_replay.h"
#include "server/store/log_file.h"

namespace penstock::server {
namespace {

constexpr int kMaxAxes = 16;
// Of the specs of all its jobs: a spec may hold a whole config.json.
constexpr int64_t kMaxSweepBytes = int64_t{32} << 20;
constexpr size_t kMaxPointText = 200;

absl::Status Invalid(const std::string& field, const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
               absl::StrCat(field, ": ", message), {{"field", field}});
}

// Whether one of the fields is the other, or lies in it.
bool Overlap(const std::string& a, const std::string& b) {
  return a == b || absl::StartsWith(a, b + ".") || absl::StartsWith(b, a + ".");
}

absl::Status CheckAxes(const v1::SweepSpec& sweep) {
  if (sweep.axes_size() < 1 || sweep.axes_size() > kMaxAxes) {
    return Invalid(
        "axes", absl::StrCat("found ", sweep.axes_size(), "; expected 1 to ", kMaxAxes,
                             ", such as {field: optimizer.learning_rate, values: [1e-5, 3e-5]}"));
  }
  for (int i = 0; i < sweep.axes_size(); ++i) {
    const v1::SweepAxis& axis = sweep.axes(i);
    const std::string name = absl::StrCat("axes[", i, "]");
    if (axis.field().empty())
      return Invalid(name + ".field", "is empty; expected a field of a job");
    if (axis.values().empty()) {
      return Invalid(name + ".values", absl::StrCat("has no value for ", axis.field()));
    }
    for (int j = 0; j < i; ++j) {
      if (!Overlap(axis.field(), sweep.axes(j).field())) continue;
      return Invalid(name + ".field", absl::StrCat("found ", axis.field(), ", of which axes[", j,
                                                   "] (", sweep.axes(j).field(),
                                                   ") decides already; expected one axis for it"));
    }
  }
  return absl::OkStatus();
}

int64_t LongestValue(const v1::SweepAxis& axis) {
  size_t longest = 0;
  for (const std::string& value : axis.values()) longest = std::max(longest, value.size());
  return static_cast<int64_t>(longest + axis.field().size());
}

// The places of a point on the axes.
std::vector<int> PlacesOf(int64_t index, const v1::SweepSpec& sweep) {
  std::vector<int> places(static_cast<size_t>(sweep.axes_size()));
  for (int axis = sweep.axes_size(); axis-- > 0;) {
    const int64_t size = sweep.axes(axis).values_size();
    places[static_cast<size_t>(axis)] = static_cast<int>(index % size);
    index /= size;
  }
  return places;
}

bool SetsOutputDirectory(const v1::SweepSpec& sweep) {
  return std::any_of(sweep.axes().begin(), sweep.axes().end(), [](const v1::SweepAxis& axis) {
    return Overlap(axis.field(), "output.directory");
  });
}

absl::StatusOr<SweepJobSpec> MakePoint(const v1::SweepSpec& sweep, int64_t index) {
  SweepJobSpec job{.spec = sweep.job(), .point = {}};
  job.point.set_number(static_cast<int32_t>(index + 1));
  const std::vector<int> places = PlacesOf(index, sweep);
  for (int i = 0; i < sweep.axes_size(); ++i) {
    const v1::SweepAxis& axis = sweep.axes(i);
    const int place = places[static_cast<size_t>(i)];
    PENSTOCK_RETURN_IF_ERROR(SetMessageField(axis.field(), axis.values(place),
                                             absl::StrCat("axes[", i, "].values[", place, "]"),
                                             &job.spec));
    v1::SweepValue& value = *job.point.add_values();
    value.set_field(axis.field());
    value.set_value(axis.values(place));
  }
  if (!job.spec.output().directory().empty() && !SetsOutputDirectory(sweep)) {
    absl::string_view directory = job.spec.output().directory();
    while (absl::ConsumeSuffix(&directory, "/")) {
    }
    job.spec.mutable_output()->set_directory(
        absl::StrCat(directory, SweepSuffix(job.point.number())));
  }
  return job;
}

}  // namespace

absl::StatusOr<int64_t> CountSweepJobs(const v1::SweepSpec& sweep) {
  PENSTOCK_RETURN_IF_ERROR(CheckAxes(sweep));
  int64_t jobs = 1;
  auto bytes = static_cast<int64_t>(sweep.job().ByteSizeLong());
  for (const v1::SweepAxis& axis : sweep.axes()) {
    // Both factors are small enough: the one is at most kMaxSweepJobs, the other came in a message.
    jobs *= axis.values_size();
    if (jobs > kMaxSweepJobs) {
      return Invalid("axes", absl::StrCat("found a grid of more than ", kMaxSweepJobs,
                                          " jobs, the most a sweep may have; leave values out, or "
                                          "make several sweeps"));
    }
    bytes += 2 * LongestValue(axis);  // in the spec and in the point
  }
  if (jobs * bytes > kMaxSweepBytes) {
    return Invalid("job", absl::StrCat("its ", jobs, " copies would take up to ", jobs * bytes,
                                       " bytes; expected at most ", kMaxSweepBytes,
                                       ". Name files instead of giving their text"));
  }
  return jobs;
}

absl::StatusOr<std::vector<SweepJobSpec>> ExpandSweep(const v1::SweepSpec& sweep) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t count, CountSweepJobs(sweep));
  std::vector<SweepJobSpec> jobs;
  std::map<std::string, int32_t> numbers;  // by hash of the spec, its directory apart
  for (int64_t index = 0; index < count; ++index) {
    PENSTOCK_ASSIGN_OR_RETURN(SweepJobSpec job, MakePoint(sweep, index));
    v1::JobSpec compared = job.spec;
    if (!SetsOutputDirectory(sweep)) compared.mutable_output()->clear_directory();
    const auto [same, is_new] = numbers.emplace(RequestHash(compared), job.point.number());
    if (!is_new) {
      return Invalid("axes", absl::StrCat("jobs ", same->second, " and ", job.point.number(), " (",
                                          PointText(job.point),
                                          ") would be the same; expected values that differ"));
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

std::string SweepSuffix(int32_t number) { return absl::StrFormat("-%03d", number); }

std::string PointText(const v1::SweepPoint& point) {
  std::string text;
  for (const v1::SweepValue& value : point.values()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", value.field(), "=", value.value());
  }
  if (text.size() <= kMaxPointText) return text;
  return ValidUtf8(text.substr(0, kMaxPointText)) + "...";
}

}  // namespace penstock::server
