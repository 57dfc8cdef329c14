#include "bench/step_flags.h"

#include <gtest/gtest.h>

#include "absl/status/status.h"

namespace penstock {
namespace {

TEST(StepFlagsTest, LayersAreAPartOfTheGeometrys) {
  StepFlags flags;
  flags.geometry = "qwen2.5-0.5b";
  const ModelSpec whole = *SpecOf(flags);
  flags.layers = 3;
  const ModelSpec part = *SpecOf(flags);
  EXPECT_EQ(part.num_layers, 3);
  EXPECT_EQ(part.window.size(), 3u);
  EXPECT_EQ(part.hidden_size, whole.hidden_size);
  flags.layers = whole.num_layers + 1;
  EXPECT_EQ(SpecOf(flags).status().code(), absl::StatusCode::kInvalidArgument);
  flags.geometry = "no such";
  EXPECT_FALSE(SpecOf(flags).ok());
}

}  // namespace
}  // namespace penstock
