#include "engine/data/hash.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

// The data order of every job that was ever run depends on these.
TEST(CounterRandomTest, HasFixedValues) {
  EXPECT_EQ(CounterRandom(0, RandomStream::kWindowOrder, 0, 0), 11988259296160705019u);
  EXPECT_EQ(CounterRandom(42, RandomStream::kRowOrder, 3, 7), 11722244770105703323u);
  EXPECT_EQ(CounterRandom(~uint64_t{0}, RandomStream::kHeldOut, 1, 1), 17154027596262733272u);
}

TEST(CounterRandomTest, DependsOnEveryArgument) {
  const uint64_t base = CounterRandom(1, RandomStream::kWindowOrder, 1, 1);
  EXPECT_NE(base, CounterRandom(2, RandomStream::kWindowOrder, 1, 1));
  EXPECT_NE(base, CounterRandom(1, RandomStream::kRowOrder, 1, 1));
  EXPECT_NE(base, CounterRandom(1, RandomStream::kWindowOrder, 2, 1));
  EXPECT_NE(base, CounterRandom(1, RandomStream::kWindowOrder, 1, 2));
}

TEST(ContentHashTest, DoesNotDependOnHowTheBytesArrive) {
  ContentHash whole, parts;
  whole.Update("penstock", 8);
  parts.Update("pen", 3);
  parts.Update("stock", 5);
  EXPECT_EQ(whole.HexDigest(), parts.HexDigest());
  EXPECT_EQ(whole.HexDigest().size(), 32u);
}

TEST(ContentHashTest, FieldsKeepTheirBorders) {
  ContentHash a, b;
  a.UpdateField("ab");
  a.UpdateField("c");
  b.UpdateField("a");
  b.UpdateField("bc");
  EXPECT_NE(a.HexDigest(), b.HexDigest());
}

}  // namespace
}  // namespace penstock
