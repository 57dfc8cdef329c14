// What of an update an op does. AdamW moves 26 bytes of host memory a parameter, and the next
// forward pass waits for the weights alone: without the moments' 8 that are written it has them
// after 18. The moments are computed again for that, from what they were, and written later.
#pragma once

#include <cstdint>

namespace penstock {

enum class UpdatePart : uint8_t {
  kAll,
  // Weights change, moments and gradients are read. kMoments is to follow with the same gradients
  // and the same decision: the two give the bits that kAll gives.
  kWeights,
  kMoments,
};

constexpr bool ChangesWeights(UpdatePart part) { return part != UpdatePart::kMoments; }
constexpr bool ChangesMoments(UpdatePart part) { return part != UpdatePart::kWeights; }

constexpr const char* UpdatePartName(UpdatePart part) {
  switch (part) {
    case UpdatePart::kAll:
      return "all";
    case UpdatePart::kWeights:
      return "weights";
    case UpdatePart::kMoments:
      return "moments";
  }
  return "?";
}

}  // namespace penstock
