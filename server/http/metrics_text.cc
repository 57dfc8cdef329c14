#include "server/http/metrics_text.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace penstock::server {
namespace {

// absl::StrCat has views of its own.
absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

void AppendValue(std::string& text, double value) {
  if (std::isnan(value)) {
    text += "NaN";
  } else if (std::isinf(value)) {
    text += value > 0 ? "+Inf" : "-Inf";
  } else {
    char digits[32];
    text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  }
}

void AppendEscaped(std::string& text, std::string_view value) {
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
}

}  // namespace

void MetricsText::Begin(Type type, std::string_view name, std::string_view help) {
  name_ = name;
  const char* const word = type == Type::kGauge     ? "gauge"
                           : type == Type::kCounter ? "counter"
                                                    : "histogram";
  absl::StrAppend(&text_, "# HELP ", name_, " ", View(help), "\n# TYPE ", name_, " ", word, "\n");
}

void MetricsText::Sample(double value, Labels labels) { Write("", value, labels); }

void MetricsText::Sample(const Histogram& histogram,
                         std::pair<std::string_view, std::string_view> label) {
  int64_t count = 0;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    count += histogram.counts[i];
    std::string bound;
    AppendValue(bound, i < histogram.bounds.size() ? histogram.bounds[i] : INFINITY);
    Write("_bucket", static_cast<double>(count), {label, {"le", bound}});
  }
  Write("_sum", histogram.sum, {label});
  Write("_count", static_cast<double>(count), {label});
}

void MetricsText::Write(std::string_view suffix, double value, Labels labels) {
  absl::StrAppend(&text_, name_, View(suffix));
  char before = '{';
  for (const auto& [key, label] : labels) {
    absl::StrAppend(&text_, std::string(1, before), View(key), "=\"");
    AppendEscaped(text_, label);
    text_ += '"';
    before = ',';
  }
  text_ += labels.size() > 0 ? "} " : " ";
  AppendValue(text_, value);
  text_ += '\n';
}

}  // namespace penstock::server
