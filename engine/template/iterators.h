// Ways to go through values.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/template/objects.h"

namespace penstock::jinja {

// The items of a vector.
class VectorIterator : public Iterator {
 public:
  explicit VectorIterator(std::vector<Value> items) : items_(std::move(items)) {}
  absl::StatusOr<std::optional<Value>> Next(Interpreter& interpreter) override;

 private:
  std::vector<Value> items_;
  size_t position_ = 0;
};

// The items of a list or tuple, from the last to the first.
class ReverseIterator : public Iterator {
 public:
  // REQUIRES: sequence.is_sequence().
  explicit ReverseIterator(Value sequence)
      : sequence_(std::move(sequence)), left_(sequence_.list().size()) {}
  absl::StatusOr<std::optional<Value>> Next(Interpreter& interpreter) override;

 private:
  Value sequence_;
  size_t left_;
};

}  // namespace penstock::jinja
