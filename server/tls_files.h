// The PEM files of config.tls: checked when the daemon starts, served, and read again when they
// change.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/security/server_credentials.h"
#include "penstock/internal/config.pb.h"

namespace penstock::server {

// Whether anything of it is set.
bool HasTls(const internal::TlsConfig& tls);

// FailedPrecondition or InvalidArgument / CONFIG_INVALID, naming the key of the config and the
// file: one that is missing or no PEM, a certificate that has expired or is not valid yet, a key
// that is another certificate's or that everybody can read, a subject that stands for nobody.
absl::Status CheckTls(const internal::TlsConfig& tls, absl::Time now);
// REQUIRES: CheckTls() is OK.
absl::Time CertificateExpiry(const internal::TlsConfig& tls);

// Reads the files again every few seconds. While they do not fit together, as in the middle of a
// renewal, new connections fail; open ones go on. With client_authorities, clients are asked for a
// certificate and may have none: then a token has to say who they are.
std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(const internal::TlsConfig& tls);

}  // namespace penstock::server
