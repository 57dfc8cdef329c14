// penstock.v1.TransferService.
#pragma once

#include "penstock/v1/transfer_service.grpc.pb.h"
#include "server/rpc/services.h"

namespace penstock::server {

class TransferServiceImpl : public v1::TransferService::CallbackService {
 public:
  explicit TransferServiceImpl(ServiceContext& services) : services_(services) {}

  grpc::ServerUnaryReactor* ListFiles(grpc::CallbackServerContext* context,
                                      const v1::ListFilesRequest* request,
                                      v1::ListFilesResponse* response) override;
  grpc::ServerWriteReactor<v1::ReadFileResponse>* ReadFile(
      grpc::CallbackServerContext* context, const v1::ReadFileRequest* request) override;
  grpc::ServerUnaryReactor* CreateUpload(grpc::CallbackServerContext* context,
                                         const v1::CreateUploadRequest* request,
                                         v1::CreateUploadResponse* response) override;
  grpc::ServerReadReactor<v1::WriteUploadRequest>* WriteUpload(
      grpc::CallbackServerContext* context, v1::WriteUploadResponse* response) override;
  grpc::ServerUnaryReactor* GetUpload(grpc::CallbackServerContext* context,
                                      const v1::GetUploadRequest* request,
                                      v1::GetUploadResponse* response) override;
  grpc::ServerUnaryReactor* ListUploads(grpc::CallbackServerContext* context,
                                        const v1::ListUploadsRequest* request,
                                        v1::ListUploadsResponse* response) override;
  grpc::ServerUnaryReactor* FinishUpload(grpc::CallbackServerContext* context,
                                         const v1::FinishUploadRequest* request,
                                         v1::FinishUploadResponse* response) override;
  grpc::ServerUnaryReactor* DeleteUpload(grpc::CallbackServerContext* context,
                                         const v1::DeleteUploadRequest* request,
                                         v1::DeleteUploadResponse* response) override;

 private:
  ServiceContext& services_;
};

}  // namespace penstock::server
