#include "engine/provenance/signing_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <optional>

#include "engine/base/status.h"
#include "engine/provenance/sha256.h"
#include "tests/engine/train/weights_testing.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using testing::ReadFileOrDie;
using testing::TempDir;
using testing::WriteFileOrDie;

// RFC 8032, section 7.1.
struct Vector {
  const char* seed;
  const char* public_key;
  const char* message;
  const char* signature;
};
constexpr Vector kVectors[] = {
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b"
     "4"
     "6bd25bf5f0595bbe24655141438e7a100b"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11"
     "d"
     "8c387b2eaeb4302aeeb00d291612bb0c00"},
    {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc"
     "6"
     "594a7c15e9716ed28dc027beceea1ec40a"}};

std::string Bytes(const std::string& hex) { return *BytesOfHex(hex, hex.size() / 2); }

TEST(SigningKeyTest, SignsAsRfc8032DoesAndBelievesThoseSignatures) {
  for (const Vector& vector : kVectors) {
    const SigningKey key = SigningKey::FromSeed(Bytes(vector.seed));
    EXPECT_EQ(key.public_key(), vector.public_key);
    EXPECT_EQ(key.Sign(Bytes(vector.message)), Bytes(vector.signature));
    EXPECT_TRUE(IsSignatureOf(vector.public_key, Bytes(vector.message), Bytes(vector.signature)));
  }
}

TEST(SigningKeyTest, NoOtherMessageKeyOrSignatureIsBelieved) {
  const Vector& vector = kVectors[1];
  const std::string message = Bytes(vector.message), signature = Bytes(vector.signature);
  EXPECT_FALSE(IsSignatureOf(vector.public_key, message + "x", signature));
  EXPECT_FALSE(IsSignatureOf(kVectors[0].public_key, message, signature));
  EXPECT_FALSE(IsSignatureOf("", message, signature));
  EXPECT_FALSE(IsSignatureOf(vector.public_key, message, ""));
  EXPECT_FALSE(IsSignatureOf(vector.public_key, message, signature + signature));
  for (size_t bit = 0; bit < 8 * signature.size(); bit += 7) {
    std::string flipped = signature;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(IsSignatureOf(vector.public_key, message, flipped)) << bit;
  }
}

TEST(SigningKeyTest, IsMadeOnceAndOnlyForItsOwner) {
  const TempDir dir;
  const std::string path = dir.Path("signing.key");
  const auto made = SigningKey::LoadOrCreate(path);
  ASSERT_TRUE(made.ok()) << made.status();
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  const std::string before = ReadFileOrDie(path);
  const auto again = SigningKey::LoadOrCreate(path);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->public_key(), made->public_key());
  EXPECT_EQ(ReadFileOrDie(path), before);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    files += entry.is_regular_file();
  }
  EXPECT_EQ(files, 1) << "no temporary file is left";
  const auto other = SigningKey::LoadOrCreate(dir.Path("other.key"));
  EXPECT_NE(other->public_key(), made->public_key());
}

TEST(SigningKeyTest, AFileThatIsNoKeyOrThatOthersReadIsRefusedAndLeftAlone) {
  const TempDir dir;
  const std::string path = dir.Path("signing.key");
  ASSERT_TRUE(SigningKey::LoadOrCreate(path).ok());
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  absl::Status status = SigningKey::LoadOrCreate(path).status();
  EXPECT_EQ(ReasonOf(status), reason::kConfigInvalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("chmod 0600"));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  const std::string good = ReadFileOrDie(path);
  for (const std::string& bad :
       {std::string(), good.substr(1), good + "\n", std::string(78, 'f')}) {
    WriteFileOrDie(path, bad);
    status = SigningKey::LoadOrCreate(path).status();
    EXPECT_EQ(ReasonOf(status), reason::kConfigInvalid) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is no signing key"));
    EXPECT_EQ(ReadFileOrDie(path), bad);
  }
}

TEST(PublicKeyFromTest, TakesTheKeyItselfAFileWithItAndTheFileOfASigningKey) {
  const TempDir dir;
  const std::string path = dir.Path("signing.key");
  const std::string key = SigningKey::LoadOrCreate(path)->public_key();
  WriteFileOrDie(dir.Path("public"), key + "\n");
  WriteFileOrDie(dir.Path("bare"), key);
  WriteFileOrDie(dir.Path("more"), key + "0\n");
  EXPECT_EQ(*PublicKeyFrom(key), key);
  EXPECT_EQ(*PublicKeyFrom(path), key);
  EXPECT_EQ(*PublicKeyFrom(dir.Path("public")), key);
  EXPECT_EQ(*PublicKeyFrom(dir.Path("bare")), key);
  for (const std::string& bad :
       {dir.Path("more"), dir.Path("none"), dir.path(), key.substr(2), std::string()}) {
    EXPECT_EQ(ReasonOf(PublicKeyFrom(bad).status()), reason::kRequestInvalid) << bad;
  }
}

TEST(Sha256Test, GivesTheDigestsOfTheStandard) {
  EXPECT_EQ(Sha256Of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 pieces;
  const std::string text = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  pieces.Update(std::as_bytes(std::span(text).first(7)));
  pieces.Update(std::as_bytes(std::span(text).subspan(7)));
  EXPECT_EQ(HexOf(pieces.Finish()),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

}  // namespace
}  // namespace penstock
