#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/table.h"
#include "eval/device_survey.h"

namespace pergola {
namespace {

std::string bandwidth_text(const std::optional<StreamingRead>& read) {
  return read ? human_bytes(read->bytes_per_second.median) + "/s" : "";
}

nlohmann::ordered_json read_json(const StreamingRead& read) {
  return {{"bytes_per_second", read.bytes_per_second.median},
          {"low", read.bytes_per_second.low},
          {"high", read.bytes_per_second.high},
          {"instruction_set", read.instruction_set},
          {"threads", read.threads},
          {"area_bytes", read.bytes}};
}

nlohmann::ordered_json to_json(const std::vector<SurveyedDevice>& devices) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const SurveyedDevice& device : devices) {
    nlohmann::ordered_json entry{{"backend", device.listing.backend},
                                 {"device", device.listing.device},
                                 {"available", device.listing.available},
                                 {"note", device.listing.note}};
    if (device.one_thread) entry["read_one_thread"] = read_json(*device.one_thread);
    if (device.all_threads) entry["read_all_threads"] = read_json(*device.all_threads);
    json.push_back(std::move(entry));
  }
  return json;
}

int act(bool measure, bool json) {
  const std::vector<SurveyedDevice> devices = survey_devices(measure);
  if (json) {
    write_output(to_json(devices).dump(2) + "\n");
    return 0;
  }
  Table table({"backend", "device", "read, 1 thread", "read, all threads", "note"});
  for (const SurveyedDevice& device : devices) {
    table.add({device.listing.backend, device.listing.available ? device.listing.device : "none",
               bandwidth_text(device.one_thread), bandwidth_text(device.all_threads), device.listing.note});
  }
  write_output(table.text());
  return 0;
}

}  // namespace

void add_devices(CLI::App& app, Action& action) {
  struct Arguments {
    bool no_measure = false;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("devices", "List every device that a model could run on");
  command->add_flag("--no-measure", arguments->no_measure, "Do not measure memory bandwidth");
  command->add_flag("--json", arguments->json, "Print JSON");
  command->footer(R"(
Examples:
  pergola devices
  pergola devices --json --no-measure)");
  command->callback(
      [arguments, &action] { action = [arguments] { return act(!arguments->no_measure, arguments->json); }; });
}

}  // namespace pergola
