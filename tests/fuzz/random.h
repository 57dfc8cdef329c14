#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>

namespace penstock::fuzz {

// The choices of one case: a function of the run's seed and the case's number, so that any case
// can be had again without the ones before it.
class Random {
 public:
  Random(int64_t seed, int64_t number) {
    std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                           static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32)};
    engine_.seed(sequence);
  }

  // From 0 to bound - 1; 0 if the bound is 0. The standard fixes the engine's values, and nothing
  // but a remainder is taken of them.
  size_t Below(size_t bound) { return bound == 0 ? 0 : engine_() % bound; }
  bool OneIn(size_t n) { return Below(n) == 0; }
  char Byte() { return static_cast<char>(Below(256)); }

  template <typename List>
  const auto& Pick(const List& list) {
    return list[Below(std::size(list))];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace penstock::fuzz
