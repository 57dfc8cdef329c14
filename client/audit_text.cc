#include "client/audit_text.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/output.h"
#include "nlohmann/json.hpp"

namespace penstock::client {
namespace {

using nlohmann::ordered_json;

const char* WordOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kProven:
      return "proven";
    case Verdict::kOpen:
      return "NOT PROVEN";
    case Verdict::kWrong:
      return "WRONG";
  }
  return "?";
}

// A number that is not finite becomes null.
std::string TextOf(const ordered_json& root) {
  return absl::StrCat(
      root.dump(2, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace), "\n");
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

std::string NumberText(double number) { return absl::StrFormat("%.4g", number); }

double RelativeChange(const WeightsDiff& diff) {
  return diff.norm_before > 0 ? diff.change_norm / diff.norm_before : 0;
}

std::string ListText(const char* what, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) absl::StrAppend(&text, what, ": ", Printable(name), "\n");
  return text;
}

}  // namespace

std::string VerifyText(const VerifyReport& report) {
  std::string text = absl::StrCat(report.subject, " of ",
                                  report.job.empty() ? "an unknown job" : Printable(report.job),
                                  ", step ", report.step, ", attempt ", report.attempt, "\n");
  std::string path;
  int64_t open = 0, wrong = 0;
  for (const Finding& finding : report.findings) {
    if (finding.path != path) {
      path = finding.path;
      absl::StrAppend(&text, Printable(path), "\n");
    }
    open += finding.verdict == Verdict::kOpen;
    wrong += finding.verdict == Verdict::kWrong;
    absl::StrAppendFormat(&text, "  %-10s  %s\n", WordOf(finding.verdict), Printable(finding.text));
  }
  absl::StrAppend(&text, wrong == 0 ? "nothing is wrong" : absl::StrCat("WRONG: ", wrong), "; ",
                  open, " not proven here\n");
  return text;
}

std::string VerifyJson(const VerifyReport& report) {
  ordered_json findings = ordered_json::array();
  for (const Finding& finding : report.findings) {
    findings.push_back({{"verdict", ToString(finding.verdict)},
                        {"what", finding.what},
                        {"path", finding.path},
                        {"text", finding.text}});
  }
  return TextOf({{"path", report.path},
                 {"subject", report.subject},
                 {"job", report.job},
                 {"step", report.step},
                 {"attempt", report.attempt},
                 {"public_key", report.public_key},
                 {"provenance_sha256", report.provenance_sha256},
                 {"wrong", report.any(Verdict::kWrong)},
                 {"findings", std::move(findings)}});
}

std::string DiffText(const WeightsDiff& diff, int64_t top) {
  int64_t changed = 0;
  for (const TensorChange& tensor : diff.tensors) changed += tensor.changed > 0;
  Facts facts;
  facts.Add("Tensors", absl::StrCat(diff.tensors.size(), ", ", changed, " of them changed"));
  facts.Add("Norm", absl::StrCat(NumberText(diff.norm_before), " before, ",
                                 NumberText(diff.norm_after), " after"));
  facts.Add("Change", absl::StrCat(NumberText(diff.change_norm), ", ",
                                   NumberText(RelativeChange(diff)), " of the norm before"));
  std::string text = facts.ToText();
  absl::StrAppend(&text, ListText("only before", diff.only_before),
                  ListText("only after", diff.only_after),
                  ListText("another shape", diff.reshaped));

  std::vector<size_t> order(diff.tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return diff.tensors[a].relative_change() > diff.tensors[b].relative_change();
  });
  order.resize(static_cast<size_t>(std::min(top, static_cast<int64_t>(order.size()))));
  if (!order.empty()) {
    Table table({"TENSOR", "SHAPE", "NORM BEFORE", "NORM AFTER", "CHANGE", "RELATIVE", "LARGEST"});
    for (const size_t i : order) {
      const TensorChange& tensor = diff.tensors[i];
      table.Add({tensor.name, ShapeText(tensor.shape), NumberText(tensor.norm_before),
                 NumberText(tensor.norm_after), NumberText(tensor.change_norm),
                 NumberText(tensor.relative_change()), NumberText(tensor.max_abs_change)});
    }
    absl::StrAppend(&text, "\n", table.ToText());
  }
  absl::StrAppend(&text, "\n");
  if (diff.anomalies.empty()) absl::StrAppend(&text, "no anomalies\n");
  for (const Anomaly& anomaly : diff.anomalies) {
    absl::StrAppend(&text, "ANOMALY ", ToString(anomaly.kind), ": ", Printable(anomaly.tensor),
                    ": ", Printable(anomaly.text), "\n");
  }
  return text;
}

std::string DiffJson(const WeightsDiff& diff) {
  ordered_json tensors = ordered_json::array(), anomalies = ordered_json::array();
  for (const TensorChange& tensor : diff.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape},
                       {"elements", tensor.elements},
                       {"changed", tensor.changed},
                       {"norm_before", tensor.norm_before},
                       {"norm_after", tensor.norm_after},
                       {"change_norm", tensor.change_norm},
                       {"relative_change", tensor.relative_change()},
                       {"max_abs_change", tensor.max_abs_change},
                       {"not_finite_before", tensor.not_finite_before},
                       {"not_finite_after", tensor.not_finite_after},
                       {"zeros_after", tensor.zeros_after}});
  }
  for (const Anomaly& anomaly : diff.anomalies) {
    anomalies.push_back(
        {{"kind", ToString(anomaly.kind)}, {"tensor", anomaly.tensor}, {"text", anomaly.text}});
  }
  return TextOf({{"norm_before", diff.norm_before},
                 {"norm_after", diff.norm_after},
                 {"change_norm", diff.change_norm},
                 {"relative_change", RelativeChange(diff)},
                 {"only_before", diff.only_before},
                 {"only_after", diff.only_after},
                 {"another_shape", diff.reshaped},
                 {"anomalies", std::move(anomalies)},
                 {"tensors", std::move(tensors)}});
}

}  // namespace penstock::client
