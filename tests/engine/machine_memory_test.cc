#include "engine/machine_memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace pergola {
namespace {

namespace fs = std::filesystem;

/// A made-up /proc and /sys.
class MachineMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(::testing::TempDir()) / ("machine_memory_" + std::string(test->name()));
    fs::remove_all(root_);
    write("proc/meminfo", "MemTotal:       24000 kB\nMemAvailable:    8000 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  fs::path root_;
};

TEST_F(MachineMemory, WithoutGroupsTheMachineLimits) {
  const AvailableMemory available = available_memory(root_);
  EXPECT_EQ(available.bytes, 8000u * 1024);
  EXPECT_EQ(available.limited_by, "this machine");
}

TEST_F(MachineMemory, UnlimitedGroupIsIgnored) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "max\n");
  write("sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(available_memory(root_).bytes, 8000u * 1024);
}

TEST_F(MachineMemory, TheTightestGroupAboveTheProcessLimits) {
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/memory.max", "5000000\n");
  write("sys/fs/cgroup/outer/memory.current", "4000000\n");
  write("sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 300000\nactive_file 200000\n");
  write("sys/fs/cgroup/outer/inner/memory.max", "9000000\n");
  write("sys/fs/cgroup/outer/inner/memory.current", "1000000\n");
  const AvailableMemory available = available_memory(root_);
  EXPECT_EQ(available.bytes, 1500000u);
  EXPECT_EQ(available.limited_by, "its control group");
}

TEST_F(MachineMemory, PathThatOnlyTheHostSeesFallsBackToTheMount) {
  write("proc/self/cgroup", "0::/docker/1234\n");
  write("sys/fs/cgroup/memory.max", "700\n");
  write("sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(available_memory(root_).bytes, 0u);
}

TEST_F(MachineMemory, VersionOneGroups) {
  write("proc/self/cgroup", "4:cpu,cpuacct:/a\n3:memory:/a\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "6000\n");
  write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "5000\n");
  write("sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 1500\n");
  EXPECT_EQ(available_memory(root_).bytes, 2500u);
}

TEST_F(MachineMemory, NoMeminfoIsAnError) {
  fs::remove(root_ / "proc/meminfo");
  EXPECT_THROW(available_memory(root_), Error);
}

}  // namespace
}  // namespace pergola
