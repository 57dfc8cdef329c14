#include "bench/token_rows.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "engine/base/labels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TokenRowsTest : public testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }

  absl::StatusOr<TokenRows> ReadBack(const std::vector<int32_t>& ids, int64_t sequence_length) {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(ids.data()),
               static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
    return TokenRows::Read(path_, sequence_length, /*vocab=*/10);
  }

  const std::string path_ = testing::TempDir() + "token_rows_" + std::to_string(getpid());
};

TEST_F(TokenRowsTest, CutsRowsThatAreDocumentsAndLeavesTheRest) {
  const auto rows = ReadBack({1, 2, 3, 4, 5, 6, 7, 8, 9, 0}, 3);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->rows(), 3);
  EXPECT_EQ(rows->LabelledTokens(2), 4);
  const MicroBatchView view = rows->View(1, 2);
  EXPECT_EQ(view.tokens, 6);
  EXPECT_EQ(view.num_documents, 2);
  const auto list = [&](const int32_t* values, size_t size) { return std::span(values, size); };
  EXPECT_THAT(list(view.ids, 6), ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_THAT(list(view.labels, 6), ElementsAre(5, 6, kIgnoreLabel, 8, 9, kIgnoreLabel));
  EXPECT_THAT(list(view.positions, 6), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(list(view.document_starts, 3), ElementsAre(0, 3, 6));
}

TEST_F(TokenRowsTest, RefusesIdsThatTheModelDoesNotHave) {
  for (const int32_t id : {-1, 10}) {
    const auto rows = ReadBack({1, 2, 3, id}, 2);
    ASSERT_EQ(rows.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(rows.status().message()), HasSubstr("token 3 of " + path_));
  }
  EXPECT_TRUE(ReadBack({1, 2, 3, 9}, 2).ok());
}

TEST_F(TokenRowsTest, RefusesAFileWithoutARow) {
  EXPECT_EQ(ReadBack({1, 2}, 3).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TokenRows::Read(path_ + ".none", 3, 10).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(TokenRows::Read("/", 3, 10).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace penstock
