// penstock.v1.JobService: checks the form of requests and hands them to the job manager.
#pragma once

#include "penstock/v1/job.grpc.pb.h"
#include "server/rpc/services.h"

namespace penstock::server {

class JobServiceImpl : public v1::JobService::CallbackService {
 public:
  explicit JobServiceImpl(ServiceContext& services) : services_(services) {}

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request,
                                      v1::CreateJobResponse* response) override;
  grpc::ServerUnaryReactor* PlanJob(grpc::CallbackServerContext* context,
                                    const v1::PlanJobRequest* request,
                                    v1::PlanJobResponse* response) override;
  grpc::ServerUnaryReactor* InspectData(grpc::CallbackServerContext* context,
                                        const v1::InspectDataRequest* request,
                                        v1::InspectDataResponse* response) override;
  grpc::ServerWriteReactor<v1::BuildDataResponse>* BuildData(
      grpc::CallbackServerContext* context, const v1::BuildDataRequest* request) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::CancelJobResponse* response) override;
  grpc::ServerUnaryReactor* PauseJob(grpc::CallbackServerContext* context,
                                     const v1::PauseJobRequest* request,
                                     v1::PauseJobResponse* response) override;
  grpc::ServerUnaryReactor* ResumeJob(grpc::CallbackServerContext* context,
                                      const v1::ResumeJobRequest* request,
                                      v1::ResumeJobResponse* response) override;
  grpc::ServerUnaryReactor* CreateSweep(grpc::CallbackServerContext* context,
                                        const v1::CreateSweepRequest* request,
                                        v1::CreateSweepResponse* response) override;
  grpc::ServerUnaryReactor* CancelSweep(grpc::CallbackServerContext* context,
                                        const v1::CancelSweepRequest* request,
                                        v1::CancelSweepResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobsResponse>* WatchJobs(
      grpc::CallbackServerContext* context, const v1::WatchJobsRequest* request) override;
  grpc::ServerUnaryReactor* ListJobMetrics(grpc::CallbackServerContext* context,
                                           const v1::ListJobMetricsRequest* request,
                                           v1::ListJobMetricsResponse* response) override;
  grpc::ServerWriteReactor<v1::TraceJobResponse>* TraceJob(
      grpc::CallbackServerContext* context, const v1::TraceJobRequest* request) override;

 private:
  ServiceContext& services_;
};

}  // namespace penstock::server
