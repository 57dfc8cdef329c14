// One function a command, each in the file of its name: adds the command to the application.
// Commands parse, call and print; they decide nothing about jobs.
#pragma once

#include "client/commands/context.h"

namespace CLI {
class App;
}

namespace penstock::client {

void AddSubmit(CLI::App& app, Context& context);
// sweep submit and sweep cancel.
void AddSweep(CLI::App& app, Context& context);
void AddPlan(CLI::App& app, Context& context);
void AddData(CLI::App& app, Context& context);
void AddJobs(CLI::App& app, Context& context);
void AddShow(CLI::App& app, Context& context);
void AddWatch(CLI::App& app, Context& context);
void AddLogs(CLI::App& app, Context& context);
void AddMetrics(CLI::App& app, Context& context);
void AddCancel(CLI::App& app, Context& context);
void AddPause(CLI::App& app, Context& context);
void AddResume(CLI::App& app, Context& context);
void AddFork(CLI::App& app, Context& context);
void AddDelete(CLI::App& app, Context& context);
void AddCheckpoints(CLI::App& app, Context& context);
void AddCheckpoint(CLI::App& app, Context& context);
// pin and unpin.
void AddPin(CLI::App& app, Context& context);
void AddExport(CLI::App& app, Context& context);
void AddVerify(CLI::App& app, Context& context);
void AddDiff(CLI::App& app, Context& context);
void AddKey(CLI::App& app, Context& context);
void AddDownload(CLI::App& app, Context& context);
// upload and uploads.
void AddUpload(CLI::App& app, Context& context);
void AddTrace(CLI::App& app, Context& context);
void AddInfo(CLI::App& app, Context& context);
void AddTop(CLI::App& app, Context& context);
void AddCalibrate(CLI::App& app, Context& context);
void AddReleaseDevice(CLI::App& app, Context& context);
// Tokens, the audit log, drain and undrain.
void AddAdmin(CLI::App& app, Context& context);
void AddRun(CLI::App& app, Context& context);
void AddContext(CLI::App& app, Context& context);
// Last: it completes the commands that are there.
void AddCompletion(CLI::App& app, Context& context);

}  // namespace penstock::client
