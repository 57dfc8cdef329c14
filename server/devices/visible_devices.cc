#include "server/devices/visible_devices.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"

namespace penstock::server {
namespace {

// A card, or a slice of it.
struct Entry {
  const GpuCard* card;
  const MigSlice* slice;  // null: the card itself
  const std::string& uuid() const { return slice == nullptr ? card->uuid : slice->uuid; }
};

absl::Status Refused(const std::string& variable, const std::string& problem) {
  return Error(absl::StatusCode::kFailedPrecondition, reason::kDeviceUnavailable,
               absl::StrCat("CUDA_VISIBLE_DEVICES of the daemon is \"", variable, "\": ", problem,
                            "; name GPUs by UUID (nvidia-smi -L lists them), or unset it"),
               {{"variable", "CUDA_VISIBLE_DEVICES"}, {"found", variable}});
}

std::vector<Entry> UsableParts(const GpuCard& card) {
  if (!card.mig_enabled) return {{&card, nullptr}};
  std::vector<Entry> slices;
  for (const MigSlice& slice : card.slices) slices.push_back({&card, &slice});
  return slices;
}

VisibleGpu Describe(const Entry& entry) {
  const GpuCard& card = *entry.card;
  VisibleGpu gpu{.uuid = entry.uuid(),
                 .description = card.name,
                 .memory_bytes = card.memory_bytes,
                 .compute_major = card.compute_major,
                 .compute_minor = card.compute_minor};
  if (entry.slice != nullptr) {
    gpu.description = absl::StrCat("MIG slice of ", card.name);
    gpu.memory_bytes = entry.slice->memory_bytes;
  }
  return gpu;
}

bool NumbersAreClear(const GpuInventory& inventory, const VisibilityVariables& variables) {
  if (variables.cuda_device_order == "PCI_BUS_ID") return true;
  return std::all_of(inventory.cards.begin(), inventory.cards.end(), [&](const GpuCard& card) {
    return card.name == inventory.cards.front().name;
  });
}

absl::StatusOr<std::vector<Entry>> ByNumber(const GpuInventory& inventory,
                                            const VisibilityVariables& variables, int64_t number) {
  const std::string& text = *variables.cuda_visible_devices;
  const auto count = static_cast<int64_t>(inventory.cards.size());
  if (number < 0 || number >= count) {
    return Refused(
        text, absl::StrCat(number, " names no GPU, there are ", count, " here, numbered from 0"));
  }
  if (!NumbersAreClear(inventory, variables)) {
    return Refused(text,
                   "it gives numbers, the GPUs here are of different kinds, and CUDA_DEVICE_ORDER "
                   "is not PCI_BUS_ID, so CUDA would number them by speed");
  }
  return UsableParts(inventory.cards[static_cast<size_t>(number)]);
}

absl::StatusOr<std::vector<Entry>> ByUuid(const GpuInventory& inventory, const std::string& text,
                                          const std::string& prefix) {
  std::vector<Entry> found;
  for (const GpuCard& card : inventory.cards) {
    if (absl::StartsWith(card.uuid, prefix)) found.push_back({&card, nullptr});
    for (const MigSlice& slice : card.slices) {
      if (absl::StartsWith(slice.uuid, prefix)) found.push_back({&card, &slice});
    }
  }
  if (found.empty()) return Refused(text, absl::StrCat("no GPU here has the UUID ", prefix));
  if (found.size() > 1) {
    return Refused(text, absl::StrCat("the UUIDs of ", found.size(), " GPUs begin with ", prefix));
  }
  if (found[0].slice == nullptr && found[0].card->mig_enabled) {
    return Refused(text, absl::StrCat(prefix, " has MIG on: only its slices can be used, by their ",
                                      "MIG- UUIDs"));
  }
  return found;
}

absl::StatusOr<std::vector<Entry>> Named(const GpuInventory& inventory,
                                         const VisibilityVariables& variables,
                                         const std::string& word) {
  int64_t number = 0;
  if (absl::SimpleAtoi(word, &number)) return ByNumber(inventory, variables, number);
  const bool is_uuid = (absl::StartsWith(word, "GPU-") || absl::StartsWith(word, "MIG-")) &&
                       word.size() > std::string_view("GPU-").size();
  if (is_uuid) return ByUuid(inventory, *variables.cuda_visible_devices, word);
  return Refused(*variables.cuda_visible_devices,
                 absl::StrCat("\"", word, "\" is neither a number nor a UUID"));
}

std::optional<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

VisibilityVariables ReadVisibilityVariables() {
  return {.cuda_visible_devices = Variable("CUDA_VISIBLE_DEVICES"),
          .cuda_device_order = Variable("CUDA_DEVICE_ORDER")};
}

absl::StatusOr<std::vector<VisibleGpu>> VisibleGpus(const GpuInventory& inventory,
                                                    const VisibilityVariables& variables) {
  std::vector<VisibleGpu> visible;
  if (!variables.cuda_visible_devices) {
    for (const GpuCard& card : inventory.cards) {
      for (const Entry& entry : UsableParts(card)) visible.push_back(Describe(entry));
    }
    return visible;
  }
  const std::string text(absl::StripAsciiWhitespace(*variables.cuda_visible_devices));
  if (text.empty() || text == "-1" || text == "NoDevFiles") return visible;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::string word(absl::StripAsciiWhitespace(part));
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Entry> entries, Named(inventory, variables, word));
    for (const Entry& entry : entries) {
      const bool twice = std::any_of(visible.begin(), visible.end(), [&](const VisibleGpu& gpu) {
        return gpu.uuid == entry.uuid();
      });
      if (twice) return Refused(text, absl::StrCat("it names ", entry.uuid(), " twice"));
      visible.push_back(Describe(entry));
    }
  }
  return visible;
}

}  // namespace penstock::server
