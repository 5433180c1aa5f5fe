#include "quantize/work_folder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/checkpoint_writer.h"

namespace pergola {
namespace {

using testing::TempFolder;
using testing::write_text;

TEST(WorkFolder, AMeasurementComesBackUnlessItIsDamaged) {
  const TempFolder folder;
  const WorkFolder work(folder / "work", {{"bits", 3}}, false);
  EXPECT_TRUE(work.load_measurement("importance").is_null());
  const nlohmann::json values{{"layer.0", 0.25}, {"layer.1", 1e-12}};
  work.save_measurement("importance", values);
  EXPECT_EQ(work.load_measurement("importance"), values);
  for (const char* damaged : {"", "{", "[]", "{\"hash\": 1}", "{\"hash\": \"0\", \"values\": {\"layer.0\": 0.5}}"}) {
    write_text(folder / "work" / "importance.json", damaged);
    EXPECT_TRUE(work.load_measurement("importance").is_null()) << damaged;
  }
}

}  // namespace
}  // namespace pergola
