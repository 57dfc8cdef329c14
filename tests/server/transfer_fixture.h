// A daemon, and the calls by which files are sent to it and fetched.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/crc32c.h"
#include "engine/provenance/sha256.h"
#include "gtest/gtest.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/test_support.h"

namespace penstock::server {

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline v1::FileEntry Entry(const std::string& path, const std::string& content) {
  v1::FileEntry entry;
  entry.set_path(path);
  entry.set_bytes(static_cast<int64_t>(content.size()));
  entry.set_sha256(Sha256Of(content));
  return entry;
}

// Of pieces whose order would show.
inline std::string Content(size_t bytes) {
  std::string content(bytes, '\0');
  uint32_t state = 1;
  for (char& c : content) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return content;
}

class TransferTest : public DaemonTest {
 protected:
  using Stub = v1::TransferService::Stub;

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    return (client_->transfers.get()->*method)(&context, request, response);
  }

  grpc::Status Create(const std::string& id, const std::vector<v1::FileEntry>& files,
                      v1::Upload* upload = nullptr, const std::string& request_id = "") {
    v1::CreateUploadRequest request;
    request.set_upload_id(id);
    request.set_request_id(request_id);
    for (const v1::FileEntry& file : files) *request.add_files() = file;
    v1::CreateUploadResponse response;
    const grpc::Status status = Call(&Stub::CreateUpload, request, &response);
    if (upload != nullptr) *upload = response.upload();
    return status;
  }
  v1::Upload Get(const std::string& name, grpc::Status* status = nullptr) {
    v1::GetUploadRequest request;
    request.set_name(name);
    v1::GetUploadResponse response;
    const grpc::Status got = Call(&Stub::GetUpload, request, &response);
    if (status != nullptr) {
      *status = got;
    } else {
      EXPECT_TRUE(got.ok()) << got.error_message();
    }
    return response.upload();
  }
  std::vector<int64_t> Received(const std::string& name) {
    const v1::Upload upload = Get(name);
    return {upload.received_bytes().begin(), upload.received_bytes().end()};
  }
  // Sends content[offset..] in pieces.
  grpc::Status Write(const std::string& name, const std::string& path, const std::string& content,
                     int64_t offset, size_t piece_bytes = size_t{1} << 20) {
    grpc::ClientContext context;
    v1::WriteUploadResponse response;
    const auto writer = client_->transfers->WriteUpload(&context, &response);
    v1::WriteUploadRequest request;
    request.set_name(name);
    request.set_path(path);
    for (size_t at = static_cast<size_t>(offset); at < content.size(); at += piece_bytes) {
      request.set_offset(static_cast<int64_t>(at));
      request.set_data(content.substr(at, piece_bytes));
      request.set_crc32c(Crc32c(request.data()));
      if (!writer->Write(request)) break;
      request.clear_name();
      request.clear_path();
    }
    writer->WritesDone();
    return writer->Finish();
  }
  grpc::Status WriteOne(v1::WriteUploadRequest request) {
    grpc::ClientContext context;
    v1::WriteUploadResponse response;
    const auto writer = client_->transfers->WriteUpload(&context, &response);
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  }
  grpc::Status FinishUpload(const std::string& name, v1::Upload* upload = nullptr,
                            const std::string& request_id = "") {
    v1::FinishUploadRequest request;
    request.set_name(name);
    request.set_request_id(request_id);
    v1::FinishUploadResponse response;
    const grpc::Status status = Call(&Stub::FinishUpload, request, &response);
    if (upload != nullptr) *upload = response.upload();
    return status;
  }
  grpc::Status Delete(const std::string& name, const std::string& request_id = "") {
    v1::DeleteUploadRequest request;
    request.set_name(name);
    request.set_request_id(request_id);
    v1::DeleteUploadResponse response;
    return Call(&Stub::DeleteUpload, request, &response);
  }
  std::vector<std::string> Names() {
    v1::ListUploadsRequest request;
    request.set_page_size(1);
    std::vector<std::string> names;
    do {
      v1::ListUploadsResponse response;
      EXPECT_TRUE(Call(&Stub::ListUploads, request, &response).ok());
      for (const v1::Upload& upload : response.uploads()) {
        EXPECT_EQ(upload.files_size(), 0);
        names.push_back(upload.name());
      }
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    return names;
  }
  struct Fetched {
    std::string data, sha256;
    grpc::Status status;
  };
  Fetched Read(const std::string& parent, const std::string& path, int64_t offset = 0) {
    grpc::ClientContext context;
    v1::ReadFileRequest request;
    request.set_parent(parent);
    request.set_path(path);
    request.set_offset(offset);
    const auto reader = client_->transfers->ReadFile(&context, request);
    Fetched fetched;
    for (v1::ReadFileResponse piece; reader->Read(&piece);) {
      EXPECT_LE(piece.data().size(), size_t{1} << 20);
      if (piece.sha256().empty()) {
        EXPECT_EQ(piece.crc32c(), Crc32c(piece.data()));
      }
      fetched.data += piece.data();
      fetched.sha256 = piece.sha256();
    }
    fetched.status = reader->Finish();
    return fetched;
  }
  std::vector<std::string> Files(const std::string& parent, grpc::Status* status = nullptr) {
    v1::ListFilesRequest request;
    request.set_parent(parent);
    v1::ListFilesResponse response;
    const grpc::Status got = Call(&Stub::ListFiles, request, &response);
    if (status != nullptr) *status = got;
    std::vector<std::string> files;
    for (const v1::FileEntry& file : response.files()) {
      files.push_back(
          absl::StrCat(file.path(), ":", file.bytes(), ":", file.sha256().substr(0, 4)));
    }
    return files;
  }
  std::string ReasonFor(const grpc::Status& status) { return ErrorInfoOf(status).reason(); }
};

}  // namespace penstock::server
