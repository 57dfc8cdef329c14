// Metrics in the text format of Prometheus (version 0.0.4).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::server {

class MetricsText {
 public:
  enum class Type : uint8_t { kGauge, kCounter, kHistogram };
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // The samples that follow are of this family, which is named even if none follows: what there may
  // be can be seen at once.
  void Begin(Type type, std::string_view name, std::string_view help);
  void Sample(double value, Labels labels = {});
  // The samples of a histogram: `counts` has one more than `bounds`, each counts its own bucket.
  struct Histogram {
    std::span<const double> bounds;
    std::span<const int64_t> counts;
    double sum = 0;
  };
  void Sample(const Histogram& histogram, std::pair<std::string_view, std::string_view> label);
  std::string Take() { return std::move(text_); }

 private:
  void Write(std::string_view suffix, double value, Labels labels);

  std::string name_;
  std::string text_;
};

}  // namespace penstock::server
