#include "engine/provenance/signing_key.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/provenance/sha256.h"

namespace penstock {
namespace {

constexpr size_t kMarkBytes = sizeof(kSeedMark) - 1;
constexpr size_t kKeyFileBytes = kMarkBytes + 2 * kSeedBytes + 1;

constexpr char kNoKey[] =
    "is no signing key: one line is wanted, \"ed25519-seed \" and 64 lower-case hexadecimal "
    "digits; "
    "bring it back from a copy, or move it away: a new one is made then, and what it signs has "
    "another public key";

const unsigned char* Unsigned(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

absl::Status IoFailure(const char* what, const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return Error(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
               full ? reason::kDiskInsufficient : reason::kIoError,
               absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error)),
               {{"file", path}});
}

absl::Status Unusable(const std::string& path, const std::string& problem) {
  return Error(absl::StatusCode::kFailedPrecondition, reason::kConfigInvalid,
               absl::StrCat(path, " ", problem), {{"file", path}});
}

// Owner of a descriptor; engine/train has one with more to it, which lies above this folder.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status SyncDirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Descriptor fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || fsync(fd.get()) != 0) return IoFailure("flush", directory, errno);
  return absl::OkStatus();
}

// The file appears under its name whole, or not at all; one that is there stays.
absl::Status CreateKeyFile(const std::string& path) {
  std::array<uint8_t, kSeedBytes> seed{};
  if (getrandom(seed.data(), seed.size(), 0) != static_cast<ssize_t>(seed.size())) {
    return IoFailure("read random bytes for", path, errno);
  }
  const std::string text = absl::StrCat(kSeedMark, HexOf(seed), "\n");
  std::string temporary = absl::StrCat(path, ".XXXXXX");
  const Descriptor fd(mkostemp(temporary.data(), O_CLOEXEC));  // mode 0600
  if (fd.get() < 0) return IoFailure("create", temporary, errno);
  absl::Status status;
  if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      fsync(fd.get()) != 0) {
    status = IoFailure("write", temporary, errno);
  } else if (link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    status = IoFailure("create", path, errno);
  }
  unlink(temporary.c_str());
  PENSTOCK_RETURN_IF_ERROR(status);
  return SyncDirectoryOf(path);
}

}  // namespace

struct SigningKey::State {
  explicit State(std::string_view seed)
      : key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, Unsigned(seed), seed.size())) {
    PENSTOCK_CHECK(key != nullptr, "OpenSSL has no Ed25519");
  }
  ~State() { EVP_PKEY_free(key); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  EVP_PKEY* key;
};

SigningKey::SigningKey(std::unique_ptr<State> state) : state_(std::move(state)) {
  std::array<uint8_t, kPublicKeyBytes> key{};
  size_t size = key.size();
  PENSTOCK_CHECK(EVP_PKEY_get_raw_public_key(state_->key, key.data(), &size) == 1, "Ed25519");
  public_key_ = HexOf(key);
}
SigningKey::SigningKey(SigningKey&&) noexcept = default;
SigningKey& SigningKey::operator=(SigningKey&&) noexcept = default;
SigningKey::~SigningKey() = default;

SigningKey SigningKey::FromSeed(std::string_view seed) {
  PENSTOCK_CHECK(seed.size() == kSeedBytes, "an Ed25519 seed has 32 bytes");
  return SigningKey(std::make_unique<State>(seed));
}

absl::StatusOr<SigningKey> SigningKey::Load(const std::string& path) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd.get() < 0 && errno == ENOENT) {
    return Error(absl::StatusCode::kNotFound, reason::kIoError,
                 absl::StrCat(path, ": there is no such file"), {{"file", path}});
  }
  if (fd.get() < 0) return IoFailure("open", path, errno);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return IoFailure("examine", path, errno);
  if (!S_ISREG(info.st_mode) || info.st_size != static_cast<off_t>(kKeyFileBytes)) {
    return Unusable(path, kNoKey);
  }
  if (info.st_uid != geteuid() || (info.st_mode & 0077) != 0) {
    return Unusable(path,
                    absl::StrCat("can be read by others than user ", geteuid(),
                                 ", who then can sign too; run chmod 0600 on it if nobody has, or "
                                 "move it away: a new one is made then"));
  }
  std::array<char, kKeyFileBytes> text{};
  if (pread(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return IoFailure("read", path, errno != 0 ? errno : EIO);
  }
  const std::string_view line(text.data(), text.size());
  const std::optional<std::string> seed =
      line.substr(0, kMarkBytes) == kSeedMark && line.back() == '\n'
          ? BytesOfHex(line.substr(kMarkBytes, 2 * kSeedBytes), kSeedBytes)
          : std::nullopt;
  if (!seed) return Unusable(path, kNoKey);
  return FromSeed(*seed);
}

absl::StatusOr<SigningKey> SigningKey::LoadOrCreate(const std::string& path) {
  absl::StatusOr<SigningKey> key = Load(path);
  if (!absl::IsNotFound(key.status())) return key;
  PENSTOCK_RETURN_IF_ERROR(CreateKeyFile(path));
  return Load(path);
}

std::string SigningKey::Sign(std::string_view message) const {
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  std::string signature(kSignatureBytes, '\0');
  size_t size = signature.size();
  const bool signed_it = context != nullptr &&
                         EVP_DigestSignInit(context, nullptr, nullptr, nullptr, state_->key) == 1 &&
                         EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()),
                                        &size, Unsigned(message), message.size()) == 1;
  EVP_MD_CTX_free(context);
  PENSTOCK_CHECK(signed_it && size == kSignatureBytes, "Ed25519");
  return signature;
}

absl::StatusOr<std::string> PublicKeyFrom(const std::string& key_or_file) {
  if (BytesOfHex(key_or_file, kPublicKeyBytes)) return key_or_file;
  const auto neither = [&] {
    return Error(
        absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
        absl::StrCat(key_or_file,
                     " is no public key, which has 64 lower-case hexadecimal digits, and no "
                     "file that holds one: penstock key show prints it"));
  };
  std::ifstream file(key_or_file, std::ios::binary);
  std::array<char, 2 * kPublicKeyBytes> text{};
  if (!file.read(text.data(), text.size())) return neither();
  const std::string_view start(text.data(), text.size());
  if (start.substr(0, kMarkBytes) == kSeedMark) {
    PENSTOCK_ASSIGN_OR_RETURN(const SigningKey key, SigningKey::Load(key_or_file));
    return key.public_key();
  }
  const int after = file.get();
  if ((after != EOF && after != '\n') || !BytesOfHex(start, kPublicKeyBytes)) return neither();
  return std::string(start);
}

bool IsSignatureOf(std::string_view public_key, std::string_view message,
                   std::string_view signature) {
  const std::optional<std::string> raw = BytesOfHex(public_key, kPublicKeyBytes);
  if (!raw || signature.size() != kSignatureBytes) return false;
  EVP_PKEY* const key =
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Unsigned(*raw), raw->size());
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  const bool good = key != nullptr && context != nullptr &&
                    EVP_DigestVerifyInit(context, nullptr, nullptr, nullptr, key) == 1 &&
                    EVP_DigestVerify(context, Unsigned(signature), signature.size(),
                                     Unsigned(message), message.size()) == 1;
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(key);
  return good;
}

}  // namespace penstock
