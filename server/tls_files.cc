#include "server/tls_files.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "server/access/method_table.h"
#include "server/jobs/request_checks.h"

namespace penstock::server {
namespace {

constexpr unsigned kRefreshSeconds = 2;

template <auto kFree>
struct Free {
  template <typename Object>
  void operator()(Object* object) const {
    kFree(object);
  }
};
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
struct Close {
  void operator()(FILE* file) const { fclose(file); }
};
using File = std::unique_ptr<FILE, Close>;

absl::Status Bad(const std::string& field, const std::string& path, const std::string& what) {
  return Error(absl::StatusCode::kFailedPrecondition, reason::kConfigInvalid,
               absl::StrCat("tls.", field, ": ", path.empty() ? "no file is named" : path, what),
               {{"field", absl::StrCat("tls.", field)}, {"file", path}});
}

absl::StatusOr<File> OpenFile(const std::string& field, const std::string& path) {
  if (path.empty()) return Bad(field, path, ", and TLS needs a certificate and its key");
  File file(fopen(path.c_str(), "re"));
  if (file == nullptr) return Bad(field, path, absl::StrCat(" cannot be read: ", strerror(errno)));
  return file;
}

absl::StatusOr<Certificate> ReadCertificate(const std::string& field, const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const File file, OpenFile(field, path));
  Certificate certificate(PEM_read_X509(file.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) {
    return Bad(field, path, " holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)");
  }
  return certificate;
}

// A daemon has nobody to ask for the password of a key.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writes*/, void* /*user*/) { return -1; }

absl::StatusOr<PrivateKey> ReadKey(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const File file, OpenFile("key", path));
  struct stat info {};
  if (fstat(fileno(file.get()), &info) == 0 && (info.st_mode & S_IRWXO) != 0) {
    return Bad("key", path, absl::StrCat(" can be read by every user; chmod o= ", path));
  }
  PrivateKey key(PEM_read_PrivateKey(file.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return Bad("key", path,
               " holds no private key in PEM form, or one that has a password; the daemon needs "
               "one without (openssl pkey -in OLD -out NEW)");
  }
  return key;
}

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string Shown(absl::Time time) {
  return absl::FormatTime(absl::RFC3339_sec, time, absl::UTCTimeZone());
}

absl::Status CheckValidity(const X509* certificate, const std::string& field,
                           const std::string& path, absl::Time now) {
  const absl::Time begin = ToTime(X509_get0_notBefore(certificate));
  const absl::Time end = ToTime(X509_get0_notAfter(certificate));
  if (end <= now) {
    return Bad(field, path,
               absl::StrCat(" has expired at ", Shown(end), ", and the clock says ", Shown(now),
                            "; renew it"));
  }
  if (begin > now) {
    return Bad(field, path,
               absl::StrCat(" is valid from ", Shown(begin), " on, and the clock says ", Shown(now),
                            "; check the clock, or wait"));
  }
  return absl::OkStatus();
}

absl::Status CheckSubjects(const internal::TlsConfig& tls) {
  for (int i = 0; i < tls.subjects_size(); ++i) {
    const internal::MappedSubject& subject = tls.subjects(i);
    const std::string field = absl::StrCat("tls.subjects[", i, "]");
    std::string problem;
    if (subject.common_name().empty()) problem = ".common_name is empty";
    if (!CheckUserName(subject.user(), "user").ok()) {
      problem = absl::StrCat(".user is \"", subject.user(),
                             "\"; expected 1 to 63 characters of a-z, 0-9, ., _ and -");
    }
    if (!ParseRole(subject.role())) {
      problem = absl::StrCat(".role is \"", subject.role(), "\"; expected viewer, user or admin");
    }
    if (problem.empty()) continue;
    return Error(absl::StatusCode::kInvalidArgument, reason::kConfigInvalid,
                 absl::StrCat(field, problem), {{"field", field}});
  }
  if (tls.subjects_size() == 0 || !tls.client_authorities().empty()) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, reason::kConfigInvalid,
               "tls.subjects is set and tls.client_authorities is not: no client would be asked "
               "for a certificate",
               {{"field", "tls.client_authorities"}});
}

}  // namespace

bool HasTls(const internal::TlsConfig& tls) {
  return !tls.certificate().empty() || !tls.key().empty() || !tls.client_authorities().empty() ||
         tls.subjects_size() > 0;
}

absl::Status CheckTls(const internal::TlsConfig& tls, absl::Time now) {
  PENSTOCK_RETURN_IF_ERROR(CheckSubjects(tls));
  PENSTOCK_ASSIGN_OR_RETURN(const Certificate certificate,
                            ReadCertificate("certificate", tls.certificate()));
  PENSTOCK_RETURN_IF_ERROR(CheckValidity(certificate.get(), "certificate", tls.certificate(), now));
  PENSTOCK_ASSIGN_OR_RETURN(const PrivateKey key, ReadKey(tls.key()));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return Bad("key", tls.key(),
               absl::StrCat(" is not the key of ", tls.certificate(),
                            "; name the two files that were made together"));
  }
  if (tls.client_authorities().empty()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const Certificate authority,
                            ReadCertificate("client_authorities", tls.client_authorities()));
  return CheckValidity(authority.get(), "client_authorities", tls.client_authorities(), now);
}

absl::Time CertificateExpiry(const internal::TlsConfig& tls) {
  const auto certificate = ReadCertificate("certificate", tls.certificate());
  return certificate.ok() ? ToTime(X509_get0_notAfter(certificate->get())) : absl::InfinitePast();
}

std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(const internal::TlsConfig& tls) {
  auto files = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      tls.key(), tls.certificate(), tls.client_authorities(), kRefreshSeconds);
  grpc::experimental::TlsServerCredentialsOptions options(files);
  options.watch_identity_key_cert_pairs();
  if (!tls.client_authorities().empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace penstock::server
