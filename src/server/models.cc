#include "server/handlers.h"

namespace pergola {
namespace {

nlohmann::ordered_json describe_model(const ModelService& service) {
  return {{"id", service.name()},
          {"object", "model"},
          {"created", service.created()},
          {"owned_by", "pergola"},
          {"max_model_len", service.model().context}};
}

}  // namespace

void handle_models(const ModelService& service, const std::shared_ptr<Exchange>& to) {
  const nlohmann::ordered_json list{{"object", "list"},
                                    {"data", nlohmann::ordered_json::array({describe_model(service)})}};
  to->respond({.body = to_text(list)});
}

void handle_model(const ModelService& service, const std::string& name, const std::shared_ptr<Exchange>& to) {
  if (name != service.name()) {
    throw ApiError(404, fmt::format("there is no model '{}' here, only '{}'", name.substr(0, 128), service.name()),
                   "model", "model_not_found");
  }
  to->respond({.body = to_text(describe_model(service))});
}

}  // namespace pergola
