// Certificates for tests, made on the spot.
#pragma once

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace penstock::server {

struct TestCertificate {
  std::string certificate, key;  // PEM
};

TestCertificate MakeAuthority(const std::string& name);

struct SignArgs {
  std::string common_name;
  absl::Time begin = absl::Now() - absl::Hours(1);
  absl::Time end = absl::Now() + absl::Hours(1);
};
// For a server on 127.0.0.1 and localhost, and for a client alike.
TestCertificate Sign(const TestCertificate& authority, const SignArgs& args);

// Replaces the file as people do who know how: beside it, then by a rename. With mode 0600.
void WriteTestFile(const std::string& path, const std::string& text);

}  // namespace penstock::server
