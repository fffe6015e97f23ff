// Exit status and output of the program; errors are reported once.
#include <gmock/gmock.h>

#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "scratch.hpp"
#include "shell.hpp"
#include "tensor/device.hpp"

namespace reelmesh::app {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string mpirun =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe "
    "--bind-to none -n 4 ";

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

class Program : public Scratch {};

TEST_F(Program, HelpsAndTellsItsVersion) {
  const Outcome help = shell(program + " --help");
  EXPECT_EQ(help.status, 0);
  for (const char* name : {"run", "plan", "inspect", "make-model"}) {
    EXPECT_THAT(help.text, HasSubstr(std::string("\n  ") + name + " "));
    const Outcome own = shell(program + " " + name + " --help");
    EXPECT_EQ(own.status, 0);
    EXPECT_THAT(own.text, HasSubstr("\nUsage: "));
    EXPECT_THAT(own.text, HasSubstr("\nExample"));
  }
  const Outcome version = shell(program + " --version");
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.text, StartsWith("reelmesh "));
  EXPECT_THAT(version.text, HasSubstr("backends: cpu"));
  EXPECT_EQ(version.text.find("CUDA: ") != std::string::npos, cuda_built) << version.text;
  EXPECT_THAT(version.text, HasSubstr("HDF5: 1."));
}

// The names of a list of words.
std::set<std::string> words(const std::string& text) {
  std::istringstream list(text);
  return {std::istream_iterator<std::string>(list), {}};
}

// The long options in this text, without those of a section ("sample.steps"); mpirun also writes
// "-name|--name".
std::set<std::string> long_options(const std::string& text) {
  static const std::regex option("(?:^|[\\s|(\"])--([a-z][a-z0-9-]*)(?![a-z0-9.-])");
  std::set<std::string> names;
  for (std::sregex_iterator found(text.begin(), text.end(), option);
       found != std::sregex_iterator(); ++found) {
    names.insert((*found)[1]);
  }
  return names;
}

// mpirun looks for some of its options behind the program, too.
TEST_F(Program, HasNoOptionOfALauncher) {
  // Open MPI 4.1: mpirun --help all.
  std::set<std::string> theirs = words(
      "allow-run-as-root am app bind-to bind-to-core bind-to-socket bycore bynode byslot cartofile "
      "cf continuous cpu-list cpu-set cpus-per-proc cpus-per-rank debug debug-daemons "
      "debug-daemons-file debug-devel debugger default-hostfile disable-recovery "
      "display-allocation display-devel-allocation display-devel-map display-diffable-map "
      "display-map display-topo do-not-launch do-not-resolve dvm enable-instant-on-support "
      "enable-recovery fwd-mpirun-port get-stack-traces gmca hnp host hostfile index-argv-by-rank "
      "launch-agent leave-session-attached machinefile map-by max-restarts max-vm-size mca "
      "merge-stderr-to-stdout n nolocal nooversubscribe noprefix novm np npernode npersocket "
      "ompi-server output-filename output-proctable oversubscribe path pernode personality ppr "
      "prefix preload-binary preload-files quiet rank-by rankfile report-bindings "
      "report-child-jobs-separately report-events report-pid report-state-on-timeout report-uri "
      "rf set-cwd-to-session-dir show-progress stdin tag-output timeout timestamp-output tune tv "
      "use-hwthread-cpus use-regexp verbose wd wdir x xml xml-file xterm");
  // Slurm 22.05 (srun --help, its manual), and some of 23.02.
  theirs.merge(words(
      "accel-bind account acctg-freq bb bbf bcast bcast-exclude begin chdir cluster-constraint "
      "clusters comment compress constraint container contiguous core-spec cores-per-socket "
      "cpu-bind "
      "cpu-freq cpus-per-gpu cpus-per-task delay-boot dependency disable-status distribution "
      "epilog error exact exclude exclusive export extra extra-node-info gid gpu-bind gpu-freq "
      "gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags het-group hint hold "
      "immediate input "
      "interactive job-name jobid kill-on-bad-exit label licenses mail-type mail-user mcs-label "
      "mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi msg-timeout multi-prog network nice "
      "no-allocate no-kill nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu "
      "ntasks-per-node ntasks-per-socket open-mode output overcommit overlap oversubscribe "
      "partition power prefer preserve-env priority profile prolog propagate pty qos quiet "
      "quit-on-interrupt reboot relative reservation resv-ports send-libs signal slurmd-debug "
      "sockets-per-node spread-job switches task-epilog task-prolog test-only thread-spec threads "
      "threads-per-core time time-min tmp treewidth uid unbuffered usage use-min-nodes "
      "verbose wait wckey x11"));
  theirs.merge(long_options(shell(mpirun + "--help all").text));  // of this machine
  // Print and end. srun's --deadline is read only in front of the program.
  for (const char* allowed : {"help", "version", "deadline"}) theirs.erase(allowed);
  EXPECT_TRUE(theirs.contains("tune"));
  std::set<std::string> ours = long_options(shell(program + " --help").text);
  for (const char* name : {"run", "train", "plan", "plan simulate", "inspect", "make-model"}) {
    const std::string help = shell(program + " " + name + " --help").text;
    ours.merge(long_options(help.substr(0, help.find("\nExample"))));  // these have launchers
  }
  for (const char* name : {"config", "from", "max-time", "ranks", "preset", "mtbf", "layers"}) {
    EXPECT_TRUE(ours.contains(name)) << name;
  }
  for (const std::string& name : ours) EXPECT_FALSE(theirs.contains(name)) << name;
}

TEST_F(Program, RefusesSubcommandsThatItDoesNotHave) {
  const Outcome wrong = shell(program + " runn");
  EXPECT_EQ(wrong.status, 64);
  EXPECT_EQ(wrong.text,
            "reelmesh: error: unknown subcommand 'runn'; did you mean run? (see "
            "reelmesh --help)\n");
  EXPECT_EQ(shell(program).status, 64);
}

TEST_F(Program, HelpsWithASubcommand) {
  const Outcome help = shell(program + " help run");
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.text, shell(program + " run --help").text);
  EXPECT_THAT(help.text, StartsWith("Makes the clips of a job"));
  EXPECT_EQ(shell(program + " help runn").status, 64);
}

TEST_F(Program, SaysHowManyFramesAreMade) {
  struct Row {
    const char* preset;
    int asked, made;
    const char* nearest;  // that the model can make; null: as asked for
  };
  const std::vector<Row> table{{"tiny-cogvideox", 12, 9, "9 and 16"},
                               {"tiny-cogvideox", 5, 8, "1 and 8"},
                               {"tiny-cogvideox", 8, 8, nullptr},
                               {"tiny-cogvideox", 9, 9, nullptr},
                               {"tiny-cogvideox-1.5", 12, 9, "9 and 16"},
                               {"tiny-cogvideox-1.5", 21, 24, "17 and 24"},
                               {"tiny-stdit", 5, 5, nullptr},
                               {"tiny-stdit3", 19, 19, nullptr}};
  for (const Row& row : table) {
    SCOPED_TRACE(fmt::format("{}, {} frames", row.preset, row.asked));
    std::filesystem::remove_all("model");
    ASSERT_EQ(shell(program + " make-model --no-sync " + row.preset + " model").status, 0);
    const std::string plan =
        fmt::format("{} plan --ranks 1 --model.path model --sample.frames {} ", program, row.asked);
    const std::string text = shell(plan).text;
    const std::string warning = fmt::format(
        "reelmesh: warning: sample.frames: found {} frames, of which the model makes {}; the "
        "nearest numbers that it can make are {}\n",
        row.asked, row.made, row.nearest == nullptr ? "" : row.nearest);
    EXPECT_EQ(count(text, "warning"), row.nearest == nullptr ? 0 : 1) << text;
    if (row.nearest != nullptr) {
      EXPECT_THAT(text, StartsWith(warning));
      EXPECT_THAT(text, HasSubstr(fmt::format("; asked for: {}x", row.asked)));
    }
    EXPECT_THAT(text, HasSubstr(fmt::format("1 clip of {}x", row.made)));
    const auto clip = nlohmann::json::parse(shell(plan + "--json 2>/dev/null").text).at("clip");
    EXPECT_EQ(clip.at("frames"), row.made);
    EXPECT_EQ(clip.at("asked_frames"), row.asked);
  }
}

TEST_F(Program, WarnsOnceOfClipsWithTheSameFrames) {
  ASSERT_EQ(shell(program + " make-model --no-sync tiny-cogvideox model").status, 0);
  std::string lines;
  for (int i = 0; i < 100; ++i)
    lines += R"({"prompt": "a", "frames": 12})"
             "\n";
  write("p.jsonl", lines);
  const std::string text =
      shell(program + " plan --ranks 1 --model.path model --prompt.file p.jsonl").text;
  EXPECT_EQ(count(text, "warning"), 1) << text;
  EXPECT_THAT(text, HasSubstr("p.jsonl:1: frames: found 12 frames (the first of 100 clips), of "
                              "which the model makes 9;"));
}

TEST_F(Program, WarnsOfEmptyPrompts) {
  const std::string plan = program + " plan --ranks 1 --preset tiny-cogvideox ";
  write("p.json", R"(["", "a", {"prompt": " "}, {"token_ids": [1]}])");
  EXPECT_EQ(count(shell(plan).text, "warning"), 0) << "without prompts it is planned for one";
  EXPECT_EQ(count(shell(plan + "--prompt.text a").text, "warning"), 0);
  EXPECT_THAT(shell(plan + "--prompt.text a --prompt.text ''").text,
              StartsWith("reelmesh: warning: clip 1: the prompt is empty\n"));
  EXPECT_THAT(shell(plan + "--prompt.text a --prompt.file p.json --prompt.repeat 2").text,
              StartsWith("reelmesh: warning: 4 clips have an empty prompt, the first of them clip "
                         "2\n"));
}

TEST_F(Program, WarnsOfFloat32OnGpus) {
  const std::string plan = program + " plan --ranks 1 --preset tiny-cogvideox --device.backend ";
  const std::string warning = "reelmesh: warning: numerics.dtype = float32, ";
  write("job.cfg", "[numerics]\ndtype = float32\n");
  EXPECT_THAT(shell(plan + "cuda").text, StartsWith(warning + "the default, on GPUs: "));
  EXPECT_THAT(shell(plan + "cuda --config job.cfg").text,
              StartsWith(warning + "from the job file, on GPUs: "));
  for (const char* quiet :
       {"cpu", "cpu --config job.cfg", "cuda --numerics.dtype bfloat16",
        "cuda --config job.cfg --numerics.dtype float32", "cuda --numerics.tf32 yes"}) {
    const std::string text = shell(plan + quiet).text;
    EXPECT_EQ(count(text, "warning"), 0) << text;
    EXPECT_THAT(text, StartsWith("1 clip of ")) << quiet;
  }
}

TEST_F(Program, CountsPromptsAndSkippedLines) {
  ASSERT_EQ(shell(program + " make-model --no-sync tiny-cogvideox model").status, 0);
  const std::vector<std::array<const char*, 2>> table{
      {"# a\n\n\n  \na cat\na dog", "2 prompts from p.txt; 1 comment and 3 empty lines skipped\n"},
      {"# a\r# b\ra cat\r", "1 prompt from p.txt; 2 comments skipped\n"},
      {"a cat\r\n\r\n", "1 prompt from p.txt; 1 empty line skipped\n"},
      {"a red circle\ra blue square\r", "2 clips of "}};
  for (const auto& [file, said] : table) {
    write("p.txt", file);
    EXPECT_THAT(shell(program + " plan --ranks 1 --model.path model --prompt.file p.txt").text,
                StartsWith(said));
  }
}

TEST_F(Program, SaysAWrongOptionOnce) {
  write("job.cfg", "[sample]\nstepz = 5\n");
  const Outcome alone = shell(program + " run --config job.cfg");
  EXPECT_EQ(alone.status, 64);
  EXPECT_EQ(alone.text,
            "reelmesh: error: job.cfg:2: unknown key sample.stepz; did you mean "
            "sample.steps?\n");
  const Outcome ranks = shell(mpirun + program + " run --config job.cfg");
  EXPECT_EQ(ranks.status, 64);
  EXPECT_EQ(count(ranks.text, "reelmesh: error: "), 1) << ranks.text;
}

TEST_F(Program, OneRankPrintsTheVersion) {
  const Outcome ranks = shell(mpirun + program + " --version");
  EXPECT_EQ(ranks.status, 0);
  EXPECT_EQ(count(ranks.text, "backends: cpu"), 1) << ranks.text;
}

TEST_F(Program, NoticesThatStandardOutputIsFull) {
  for (const char* command : {" --version", " make-model tiny-cogvideox model"}) {
    const Outcome full = shell(program + command + " 3>&1 >/dev/full 2>&3");
    EXPECT_EQ(full.status, 74) << command;
    EXPECT_EQ(full.text, "reelmesh: error: standard output cannot be written\n");
  }
}

TEST_F(Program, ShortensMessagesThatRepeatLongValues) {
  write("job.cfg", "[sample]\n" + std::string(1 << 20, 'x') + " = 5\n");
  const Outcome wrong = shell(program + " run --config job.cfg");
  EXPECT_EQ(wrong.status, 64);
  EXPECT_LT(wrong.text.size(), 2100U);
  EXPECT_THAT(wrong.text, StartsWith("reelmesh: error: job.cfg:2: unknown key sample.xxx"));
}

}  // namespace
}  // namespace reelmesh::app
