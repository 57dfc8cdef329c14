// What is served: each service behind the door. One line of it a method; a method that is missing
// here is answered UNIMPLEMENTED, so nothing can be forgotten but in the safe direction.
#pragma once

#include "penstock/v1/admin_service.grpc.pb.h"
#include "penstock/v1/checkpoint_service.grpc.pb.h"
#include "penstock/v1/job.grpc.pb.h"
#include "penstock/v1/transfer_service.grpc.pb.h"
#include "server/rpc/arena_messages.h"
#include "server/rpc/guard.h"

namespace penstock::server {

class GuardedJobService final : public v1::JobService::CallbackService {
 public:
  GuardedJobService(Door& door, v1::JobService::CallbackService& inner)
      : guard_(door, "penstock.v1.JobService", inner) {
    SetMessageAllocatorFor_ListJobs(&list_messages_);
  }

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request,
                                      v1::CreateJobResponse* response) override {
    return guard_.Unary("CreateJob", &Inner::CreateJob, context, request, response);
  }
  grpc::ServerUnaryReactor* PlanJob(grpc::CallbackServerContext* context,
                                    const v1::PlanJobRequest* request,
                                    v1::PlanJobResponse* response) override {
    return guard_.Unary("PlanJob", &Inner::PlanJob, context, request, response);
  }
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override {
    return guard_.Unary("GetJob", &Inner::GetJob, context, request, response);
  }
  grpc::ServerUnaryReactor* InspectData(grpc::CallbackServerContext* context,
                                        const v1::InspectDataRequest* request,
                                        v1::InspectDataResponse* response) override {
    return guard_.Unary("InspectData", &Inner::InspectData, context, request, response);
  }
  grpc::ServerWriteReactor<v1::BuildDataResponse>* BuildData(
      grpc::CallbackServerContext* context, const v1::BuildDataRequest* request) override {
    return guard_.Stream<v1::BuildDataResponse>("BuildData", &Inner::BuildData, context, request);
  }
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override {
    return guard_.Unary("ListJobs", &Inner::ListJobs, context, request, response);
  }
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::CancelJobResponse* response) override {
    return guard_.Unary("CancelJob", &Inner::CancelJob, context, request, response);
  }
  grpc::ServerUnaryReactor* PauseJob(grpc::CallbackServerContext* context,
                                     const v1::PauseJobRequest* request,
                                     v1::PauseJobResponse* response) override {
    return guard_.Unary("PauseJob", &Inner::PauseJob, context, request, response);
  }
  grpc::ServerUnaryReactor* ResumeJob(grpc::CallbackServerContext* context,
                                      const v1::ResumeJobRequest* request,
                                      v1::ResumeJobResponse* response) override {
    return guard_.Unary("ResumeJob", &Inner::ResumeJob, context, request, response);
  }
  grpc::ServerUnaryReactor* CreateSweep(grpc::CallbackServerContext* context,
                                        const v1::CreateSweepRequest* request,
                                        v1::CreateSweepResponse* response) override {
    return guard_.Unary("CreateSweep", &Inner::CreateSweep, context, request, response);
  }
  grpc::ServerUnaryReactor* CancelSweep(grpc::CallbackServerContext* context,
                                        const v1::CancelSweepRequest* request,
                                        v1::CancelSweepResponse* response) override {
    return guard_.Unary("CancelSweep", &Inner::CancelSweep, context, request, response);
  }
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override {
    return guard_.Unary("DeleteJob", &Inner::DeleteJob, context, request, response);
  }
  grpc::ServerWriteReactor<v1::WatchJobsResponse>* WatchJobs(
      grpc::CallbackServerContext* context, const v1::WatchJobsRequest* request) override {
    return guard_.Stream<v1::WatchJobsResponse>("WatchJobs", &Inner::WatchJobs, context, request);
  }
  grpc::ServerUnaryReactor* ListJobMetrics(grpc::CallbackServerContext* context,
                                           const v1::ListJobMetricsRequest* request,
                                           v1::ListJobMetricsResponse* response) override {
    return guard_.Unary("ListJobMetrics", &Inner::ListJobMetrics, context, request, response);
  }
  grpc::ServerWriteReactor<v1::TraceJobResponse>* TraceJob(
      grpc::CallbackServerContext* context, const v1::TraceJobRequest* request) override {
    return guard_.Stream<v1::TraceJobResponse>("TraceJob", &Inner::TraceJob, context, request);
  }

 private:
  using Inner = v1::JobService::CallbackService;
  const Guard<Inner> guard_;
  ArenaMessages<v1::ListJobsRequest, v1::ListJobsResponse> list_messages_;
};

class GuardedCheckpointService final : public v1::CheckpointService::CallbackService {
 public:
  GuardedCheckpointService(Door& door, v1::CheckpointService::CallbackService& inner)
      : guard_(door, "penstock.v1.CheckpointService", inner) {}

  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override {
    return guard_.Unary("ListCheckpoints", &Inner::ListCheckpoints, context, request, response);
  }
  grpc::ServerUnaryReactor* GetCheckpoint(grpc::CallbackServerContext* context,
                                          const v1::GetCheckpointRequest* request,
                                          v1::GetCheckpointResponse* response) override {
    return guard_.Unary("GetCheckpoint", &Inner::GetCheckpoint, context, request, response);
  }
  grpc::ServerUnaryReactor* SaveCheckpoint(grpc::CallbackServerContext* context,
                                           const v1::SaveCheckpointRequest* request,
                                           v1::SaveCheckpointResponse* response) override {
    return guard_.Unary("SaveCheckpoint", &Inner::SaveCheckpoint, context, request, response);
  }
  grpc::ServerUnaryReactor* PinCheckpoint(grpc::CallbackServerContext* context,
                                          const v1::PinCheckpointRequest* request,
                                          v1::PinCheckpointResponse* response) override {
    return guard_.Unary("PinCheckpoint", &Inner::PinCheckpoint, context, request, response);
  }
  grpc::ServerUnaryReactor* DeleteCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::DeleteCheckpointRequest* request,
                                             v1::DeleteCheckpointResponse* response) override {
    return guard_.Unary("DeleteCheckpoint", &Inner::DeleteCheckpoint, context, request, response);
  }
  grpc::ServerUnaryReactor* ExportCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::ExportCheckpointRequest* request,
                                             v1::ExportCheckpointResponse* response) override {
    return guard_.Unary("ExportCheckpoint", &Inner::ExportCheckpoint, context, request, response);
  }

 private:
  using Inner = v1::CheckpointService::CallbackService;
  const Guard<Inner> guard_;
};

class GuardedTransferService final : public v1::TransferService::CallbackService {
 public:
  GuardedTransferService(Door& door, v1::TransferService::CallbackService& inner)
      : guard_(door, "penstock.v1.TransferService", inner) {}

  grpc::ServerUnaryReactor* ListFiles(grpc::CallbackServerContext* context,
                                      const v1::ListFilesRequest* request,
                                      v1::ListFilesResponse* response) override {
    return guard_.Unary("ListFiles", &Inner::ListFiles, context, request, response);
  }
  grpc::ServerWriteReactor<v1::ReadFileResponse>* ReadFile(
      grpc::CallbackServerContext* context, const v1::ReadFileRequest* request) override {
    return guard_.Stream<v1::ReadFileResponse>("ReadFile", &Inner::ReadFile, context, request);
  }
  grpc::ServerUnaryReactor* CreateUpload(grpc::CallbackServerContext* context,
                                         const v1::CreateUploadRequest* request,
                                         v1::CreateUploadResponse* response) override {
    return guard_.Unary("CreateUpload", &Inner::CreateUpload, context, request, response);
  }
  grpc::ServerReadReactor<v1::WriteUploadRequest>* WriteUpload(
      grpc::CallbackServerContext* context, v1::WriteUploadResponse* response) override {
    return guard_.Bytes<v1::WriteUploadRequest>("WriteUpload", &Inner::WriteUpload, context,
                                                response);
  }
  grpc::ServerUnaryReactor* GetUpload(grpc::CallbackServerContext* context,
                                      const v1::GetUploadRequest* request,
                                      v1::GetUploadResponse* response) override {
    return guard_.Unary("GetUpload", &Inner::GetUpload, context, request, response);
  }
  grpc::ServerUnaryReactor* ListUploads(grpc::CallbackServerContext* context,
                                        const v1::ListUploadsRequest* request,
                                        v1::ListUploadsResponse* response) override {
    return guard_.Unary("ListUploads", &Inner::ListUploads, context, request, response);
  }
  grpc::ServerUnaryReactor* FinishUpload(grpc::CallbackServerContext* context,
                                         const v1::FinishUploadRequest* request,
                                         v1::FinishUploadResponse* response) override {
    return guard_.Unary("FinishUpload", &Inner::FinishUpload, context, request, response);
  }
  grpc::ServerUnaryReactor* DeleteUpload(grpc::CallbackServerContext* context,
                                         const v1::DeleteUploadRequest* request,
                                         v1::DeleteUploadResponse* response) override {
    return guard_.Unary("DeleteUpload", &Inner::DeleteUpload, context, request, response);
  }

 private:
  using Inner = v1::TransferService::CallbackService;
  const Guard<Inner> guard_;
};

class GuardedAdminService final : public v1::AdminService::CallbackService {
 public:
  GuardedAdminService(Door& door, v1::AdminService::CallbackService& inner)
      : guard_(door, "penstock.v1.AdminService", inner) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override {
    return guard_.Unary("GetServerInfo", &Inner::GetServerInfo, context, request, response);
  }
  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override {
    return guard_.Unary("ListDevices", &Inner::ListDevices, context, request, response);
  }
  grpc::ServerUnaryReactor* ReleaseDevice(grpc::CallbackServerContext* context,
                                          const v1::ReleaseDeviceRequest* request,
                                          v1::ReleaseDeviceResponse* response) override {
    return guard_.Unary("ReleaseDevice", &Inner::ReleaseDevice, context, request, response);
  }
  grpc::ServerUnaryReactor* CalibrateDevice(grpc::CallbackServerContext* context,
                                            const v1::CalibrateDeviceRequest* request,
                                            v1::CalibrateDeviceResponse* response) override {
    return guard_.Unary("CalibrateDevice", &Inner::CalibrateDevice, context, request, response);
  }
  grpc::ServerUnaryReactor* DrainServer(grpc::CallbackServerContext* context,
                                        const v1::DrainServerRequest* request,
                                        v1::DrainServerResponse* response) override {
    return guard_.Unary("DrainServer", &Inner::DrainServer, context, request, response);
  }
  grpc::ServerUnaryReactor* CreateToken(grpc::CallbackServerContext* context,
                                        const v1::CreateTokenRequest* request,
                                        v1::CreateTokenResponse* response) override {
    return guard_.Unary("CreateToken", &Inner::CreateToken, context, request, response);
  }
  grpc::ServerUnaryReactor* ListTokens(grpc::CallbackServerContext* context,
                                       const v1::ListTokensRequest* request,
                                       v1::ListTokensResponse* response) override {
    return guard_.Unary("ListTokens", &Inner::ListTokens, context, request, response);
  }
  grpc::ServerUnaryReactor* RevokeToken(grpc::CallbackServerContext* context,
                                        const v1::RevokeTokenRequest* request,
                                        v1::RevokeTokenResponse* response) override {
    return guard_.Unary("RevokeToken", &Inner::RevokeToken, context, request, response);
  }
  grpc::ServerUnaryReactor* ListAuditEntries(grpc::CallbackServerContext* context,
                                             const v1::ListAuditEntriesRequest* request,
                                             v1::ListAuditEntriesResponse* response) override {
    return guard_.Unary("ListAuditEntries", &Inner::ListAuditEntries, context, request, response);
  }

 private:
  using Inner = v1::AdminService::CallbackService;
  const Guard<Inner> guard_;
};

}  // namespace penstock::server
