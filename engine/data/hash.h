// The two uses of XXH3 in the data pipeline: identity of content, and random numbers that are
// a function of counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace penstock {

// 128-bit hash of a stream of bytes. Not cryptographic: it finds changed files and broken
// disks, not forgeries.
class ContentHash {
 public:
  ContentHash();
  ContentHash(ContentHash&&) noexcept;
  ContentHash& operator=(ContentHash&&) noexcept;
  ~ContentHash();

  void Update(const void* data, int64_t bytes);
  // Length and bytes, so that ("ab", "c") differs from ("a", "bc").
  void UpdateField(std::string_view field);
  std::string HexDigest() const;  // 32 digits; of what was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 64-bit hash of one block.
uint64_t HashOf(const void* data, int64_t bytes);

// What a counter hash decides. Values are fixed: changing one changes the data order of jobs.
enum class RandomStream : uint64_t { kWindowOrder = 1, kRowOrder = 2, kHeldOut = 3, kMixture = 4 };

// A uniform 64-bit number: a function of its arguments only, the same on every machine. There is
// no generator state, so nothing else that draws numbers can move the data order.
uint64_t CounterRandom(uint64_t seed, RandomStream stream, uint64_t epoch, uint64_t index);

}  // namespace penstock
