#include "tests/server/test_certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "gtest/gtest.h"

namespace penstock::server {
namespace {

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

void AddExtension(X509* certificate, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
  ASSERT_NE(extension, nullptr) << value;
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Signed by `authority`, or (null) by itself as an authority.
TestCertificate Make(const SignArgs& args, const TestCertificate* authority) {
  static int64_t serial = 1;
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set_int64(X509_get_serialNumber(certificate), ++serial);
  ASN1_TIME_set(X509_getm_notBefore(certificate), absl::ToTimeT(args.begin));
  ASN1_TIME_set(X509_getm_notAfter(certificate), absl::ToTimeT(args.end));
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(args.common_name.c_str()), -1,
                             -1, 0);
  EVP_PKEY* signer = key;
  X509* issuer = certificate;
  if (authority != nullptr) {
    BIO* bio = BIO_new_mem_buf(authority->key.data(), static_cast<int>(authority->key.size()));
    signer = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    bio = BIO_new_mem_buf(authority->certificate.data(),
                          static_cast<int>(authority->certificate.size()));
    issuer = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    AddExtension(certificate, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  } else {
    AddExtension(certificate, NID_basic_constraints, "critical,CA:TRUE");
    AddExtension(certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
  }
  X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
  EXPECT_NE(X509_sign(certificate, signer, EVP_sha256()), 0);

  TestCertificate made;
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate);
  made.certificate = Text(bio);
  bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  made.key = Text(bio);
  if (authority != nullptr) {
    EVP_PKEY_free(signer);
    X509_free(issuer);
  }
  X509_free(certificate);
  EVP_PKEY_free(key);
  return made;
}

}  // namespace

TestCertificate MakeAuthority(const std::string& name) {
  return Make({.common_name = name}, nullptr);
}

TestCertificate Sign(const TestCertificate& authority, const SignArgs& args) {
  return Make(args, &authority);
}

void WriteTestFile(const std::string& path, const std::string& text) {
  const std::string next = path + ".next";
  std::ofstream(next) << text;
  chmod(next.c_str(), 0600);
  ASSERT_EQ(rename(next.c_str(), path.c_str()), 0);
}

}  // namespace penstock::server
