// What the command line proves its identity with: a bearer token, a client certificate. And by what
// it knows the daemon's certificate.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/endpoint.h"

namespace penstock::client {

// As given on the command line; empty: not given.
struct CredentialOptions {
  std::string token_file;
  std::string tls_ca, tls_cert, tls_key;  // PEM files
};

struct Credentials {
  std::string token;  // "pst_...", or empty
  // Contents of PEM files, or empty.
  std::string tls_ca, tls_cert, tls_key;
};

// The token is that of --token-file, else PENSTOCK_TOKEN; the authority's certificate that of
// --tls-ca, else of the file that PENSTOCK_TLS_CA names, else the system's. InvalidArgument /
// REQUEST_INVALID for a file that others can read, a text that is no token, TLS options for an
// endpoint without TLS, and a token that would cross a network in plain text.
absl::StatusOr<Credentials> FindCredentials(const CredentialOptions& options,
                                            const Endpoint& endpoint,
                                            const GetEnvironment& environment);

}  // namespace penstock::client
