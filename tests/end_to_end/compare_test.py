"""`reelmesh plan` with a machine file: layouts, numbers of ranks and deadlines; Slurm."""

import json
import os

from support import DATA, ERROR, PROGRAM, Reference, Scratch, command_of, execute, main

USAGE, UNAVAILABLE = 64, 69
MACHINE = DATA.parent / "machine.cfg"
# Set by mpirun or Slurm, if the tests run in a job of theirs.
LAUNCHERS = ("OMPI_", "PMIX_", "SLURM_")


class CompareCase(Scratch):
    def options(self, **more):
        return Reference("rotary").options(
            self.folder / "output", **{"prompt__text": "rain", "device__backend": "cpu",
                                       "device__machine": MACHINE} | more)

    def refused(self, outcome, status, *told):
        self.assertEqual(outcome.status, status, outcome)
        errors = outcome.lines(ERROR)
        self.assertEqual(len(errors), 1, outcome)
        for text in told:
            self.assertIn(str(text), errors[0])

    def seconds(self, options, ranks):
        return self.planned(options, "--ranks", ranks)["predicted"]["job_seconds"]


class ComparisonTest(CompareCase):
    def test_layouts_are_sorted_and_can_be_chosen(self):
        options = self.options()
        plans = self.planned(options, "--ranks", 4, command=("compare",))["compared"]
        seconds = [plan["job_seconds"] for plan in plans]
        self.assertEqual(seconds, sorted(seconds))
        self.assertGreater(len(plans), 5)
        for plan in (plans[0], plans[-1]):
            words = plan["options"].split()
            own = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2],
                           strict=True))
            alone = self.seconds(options | own, 4)
            self.assertAlmostEqual(alone / plan["job_seconds"], 1, places=6, msg=plan)
        text = self.plan(options, "--ranks", 4, command=("compare",))
        self.assertEqual(text.status, 0, text)
        lines = text.output.splitlines()
        self.assertTrue(lines[2].startswith("auto: "), lines[2])
        self.assertIn("recommended: auto", lines[-1])
        self.assertEqual(len(lines), len(plans) + 4)
        error = 0.4  # of a machine that was not measured
        for plan, line in zip(plans[1:], lines[3:], strict=False):
            equal = plan["job_seconds"] <= (1 + error) * plans[0]["job_seconds"]
            self.assertEqual(plan["equal"], equal, plan)
            self.assertEqual(line.endswith("="), equal, line)

    def test_numbers_of_ranks_have_their_efficiency(self):
        options = self.options()
        plans = self.planned(options, "--ranks", "1,2,4")["compared"]
        self.assertEqual([plan["ranks"] for plan in plans], [1, 2, 4])
        for plan in plans:
            self.assertAlmostEqual(plan["job_seconds"] / self.seconds(options, plan["ranks"]), 1,
                                   places=6)
            used = plans[0]["job_seconds"] / (plan["ranks"] * plan["job_seconds"])
            self.assertAlmostEqual(plan["efficiency"], used)

    def test_a_deadline_is_met_by_the_fewest_ranks(self):
        options = self.options()
        seconds = {ranks: self.seconds(options, ranks) for ranks in (1, 2, 3)}
        self.assertLess(seconds[2], seconds[1], "the test needs a job that two ranks do sooner")
        between = (seconds[1] + seconds[2]) / 2
        for deadline, ranks in ((2 * seconds[1], 1), (between, 2)):
            planned = self.planned(options, "--deadline", f"{deadline}s")
            self.assertEqual(planned["ranks"], ranks)
            self.assertLessEqual(planned["predicted"]["job_seconds"], deadline)
        self.refused(self.plan(options, "--deadline", "0.0001s", "--ranks", 3), UNAVAILABLE,
                     "--deadline", "no number of ranks up to 3", "the best is")

    def test_nonsense_is_refused(self):
        without = self.options()
        del without["device.machine"]
        for own, command in ((("--ranks", 2), ("compare",)), (("--ranks", "1,2"), ()),
                             (("--deadline", "1h"), ())):
            with self.subTest(own=own):
                self.refused(self.plan(without, *own, command=command), USAGE,
                             "device.machine is missing")
        options = self.options()
        for own, told in ((("--ranks", "2,1"), "increasing"), (("--ranks", "1,,2"), "--ranks"),
                          (("--ranks", "1,2", "--deadline", "1h"), "--ranks"),
                          (("--ranks", 2, "--deadline", "soon"), "--deadline")):
            with self.subTest(own=own):
                self.refused(self.plan(options, *own), USAGE, told)
        self.refused(self.plan(options, "--ranks", "1,2", command=("compare",)), USAGE, "--ranks")
        gpu = self.options(device__machine=DATA.parents[2] / "inputs/machines/l40.cfg")
        self.refused(self.plan(gpu, "--ranks", 2), USAGE, "device.machine", "GPUs")


class SlurmTest(CompareCase):
    def setUp(self):
        super().setUp()
        self.outside = {name: value for name, value in os.environ.items()
                        if not name.startswith(LAUNCHERS)}

    def test_ranks_are_those_of_the_allocation(self):
        options = {name: value for name, value in self.options().items() if name != "output.path"}
        command = [*command_of(options, name="plan"), "--json"]
        self.refused(execute(command, self.outside), USAGE, "--ranks is missing")
        slurm = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "6", "SLURM_JOB_NUM_NODES": "2"}
        one_node = self.folder / "one_node.cfg"
        one_node.write_text("".join(line for line in MACHINE.read_text().splitlines(True)
                                    if not line.startswith("network")))
        self.refused(execute(command_of(options | {"device.machine": one_node,
                                                   "parallel.mode": "phased",
                                                   "parallel.replicas": 1}, name="plan"),
                             self.outside | slurm), 65, "link.network")
        outcome = execute(command_of(options, name="plan"),
                          self.outside | slurm | {"SLURM_JOB_END_TIME": "1"})
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn("6 ranks on 2 hosts", outcome.output)
        self.assertIn("sbatch --nodes=2 --ntasks-per-node=3 --cpus-per-task=1", outcome.output)
        self.assertIn("jobs/cogvideox.sbatch", outcome.output)
        self.assertIn("Slurm job 7 ends in", outcome.errors)

    def test_layouts_fit_the_memory_of_a_node(self):
        options = {name: value for name, value in self.options().items() if name != "output.path"}

        def compared(**more):
            slurm = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "1"}
            return execute([PROGRAM, "plan", "compare", *command_of(options, name="plan")[2:],
                            "--json"],
                           self.outside | slurm | more)
        plans = json.loads(compared().output)["compared"]
        sizes = [plan["memory"] / 2 ** 20 for plan in plans]  # MiB, as Slurm counts
        outcome = compared(SLURM_MEM_PER_NODE=str(int(1.1 * 4 * max(sizes))))
        # Seconds of loading depend on how much of the weights is in the page cache just then.
        layouts = [[plan["layout"], plan["memory"]] for plan in plans]
        self.assertCountEqual([[plan["layout"], plan["memory"]]
                               for plan in json.loads(outcome.output)["compared"]], layouts)
        self.refused(compared(SLURM_MEM_PER_NODE=str(int(0.9 * 4 * min(sizes)))), UNAVAILABLE,
                     "no layout of 4 ranks fits")


class ShippedTest(Scratch):
    def test_machines_of_the_repository_can_be_read(self):
        """Each refuses ranks on CPUs, after it was read."""
        machines = sorted((DATA.parents[2] / "inputs/machines").glob("*.cfg"))
        self.assertGreaterEqual(len(machines), 5)
        for machine in machines:
            outcome = execute([PROGRAM, "plan", "--ranks", 1, "--device.machine", machine,
                               "--device.backend", "cpu", "--model.path",
                               DATA / "rotary"])
            self.assertEqual(outcome.status, USAGE, outcome)
            self.assertIn(f"{machine} has times of GPUs", outcome.errors)


if __name__ == "__main__":
    main()
