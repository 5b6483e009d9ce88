#include "runtime/witness/archive.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "runtime/witness/page.h"

namespace lockstep::witness {
namespace {

std::string OutputOf(const std::string& command) {
  std::string output;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get())) output += static_cast<char>(c);
  return output;
}

TEST(WitnessArchive, IsAZipFileThatPythonFindsWhole) {
  const Fd file = MakeArchive().value();
  const std::string check =
      "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); print(z.testzip(), *z.namelist())";
  EXPECT_EQ(OutputOf("python3 -c '" + check + "' " + PathOf(file)),
            "None sitecustomize.py lockstep_imports.py lockstep_parking.py lockstep_witness.py\n");
}

TEST(WitnessArchive, PythonImportsFromItWhenItStarts) {
  const Fd file = MakeArchive().value();
  EXPECT_EQ(OutputOf("PYTHONPATH=" + PathOf(file) +
                     " python3 -c 'import sys; print(\"lockstep_witness\" in sys.modules, "
                     "any(\"/fd/\" in entry for entry in sys.path))'"),
            "True False\n");
}

TEST(WitnessArchive, IsTheSameEachTime) { EXPECT_EQ(ZipOf(PythonFiles()), ZipOf(PythonFiles())); }

}  // namespace
}  // namespace lockstep::witness
