// Characters that tell a position when they have been read: for parsers whose events do not say
// where they are.
#pragma once

#include <cstddef>
#include <iterator>

namespace penstock {

// An input iterator over a text. `position->Pass(c)` is called as it moves on from a character c.
template <typename Position>
class ObservedChars {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  ObservedChars(const char* at, Position* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  ObservedChars& operator++() {
    position_->Pass(*at_++);
    return *this;
  }
  ObservedChars operator++(int) {
    ObservedChars before = *this;
    ++*this;
    return before;
  }
  bool operator==(const ObservedChars& other) const { return at_ == other.at_; }
  bool operator!=(const ObservedChars& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  Position* position_;
};

}  // namespace penstock
