#include "engine/data/hash.h"

#include <xxhash.h>

#include <array>

#include "absl/strings/str_format.h"
#include "engine/base/check.h"

namespace penstock {

struct ContentHash::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    PENSTOCK_CHECK(xxh != nullptr, "out of memory");
    XXH3_128bits_reset(xxh);
  }
  State(const State&) = delete;
  ~State() { XXH3_freeState(xxh); }
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {}
ContentHash::ContentHash(ContentHash&&) noexcept = default;
ContentHash& ContentHash::operator=(ContentHash&&) noexcept = default;
ContentHash::~ContentHash() = default;

void ContentHash::Update(const void* data, int64_t bytes) {
  XXH3_128bits_update(state_->xxh, data, static_cast<size_t>(bytes));
}

void ContentHash::UpdateField(std::string_view field) {
  const uint64_t length = field.size();
  Update(&length, sizeof(length));
  Update(field.data(), static_cast<int64_t>(field.size()));
}

std::string ContentHash::HexDigest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

uint64_t HashOf(const void* data, int64_t bytes) {
  return XXH3_64bits(data, static_cast<size_t>(bytes));
}

uint64_t CounterRandom(uint64_t seed, RandomStream stream, uint64_t epoch, uint64_t index) {
  const std::array<uint64_t, 4> words = {seed, static_cast<uint64_t>(stream), epoch, index};
  return XXH3_64bits(words.data(), sizeof(words));
}

}  // namespace penstock
