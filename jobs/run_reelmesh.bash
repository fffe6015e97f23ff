# What the scripts beside this file share. They set MODEL, OUTPUT, CONFIG and `launch`, the words of the
# program, whose further options are "$@". Starts the ranks, and ends with their status.

# The ranks react to signals themselves. This shell ignores them, and so outlives the ranks; srun must
# not take its place (exec srun), as srun kills the ranks at once on SIGTERM.
trap : TERM USR1
saved() {
  find "$OUTPUT"/{clips,cache,restart} -name '*.h5' -printf '%p %T@\n' 2>/dev/null | sort || true
}
saved_before=$(saved)

# One thread a core of the rank. Since Slurm 22.05 srun asks for the cores of a task itself.
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
# Ranks that refuse a job leave one after the other with the same status, which becomes the job's as
# long as none is killed on the way.
status=0
# Words of SRUN_OPTIONS: how this Slurm starts MPI, and what else srun is to know.
read -ra srun_options <<<"${SRUN_OPTIONS:---mpi=pmix}"
own=(--model.path "$MODEL" --output.path "$OUTPUT" --output.if-exists "${IF_EXISTS:-resume}")
[ "$CONFIG" = none ] || own=(--config "$CONFIG" "${own[@]}")
srun "${srun_options[@]}" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=0 \
  --wait=20 "${launch[@]}" "${own[@]}" "$@" || status=$?

# 75: stopped on request, saved. The job is queued again, unless it has been started too often, ran
# for long without saving anything, or was cancelled.
if [ "$status" -eq 75 ]; then
  job=$SLURM_JOB_ID
  # In an array, the number of one task's job may be that of the whole array.
  [ -z "${SLURM_ARRAY_JOB_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
  state=$(scontrol --oneliner show job "$job" || true)
  if [ "${SLURM_RESTART_COUNT:-0}" -ge "${MAX_RESTARTS:-100}" ]; then
    echo "job $job is not queued again after ${SLURM_RESTART_COUNT:-0} restarts (MAX_RESTARTS)"
  elif [ "$SECONDS" -ge 600 ] && [ "$(saved)" = "$saved_before" ]; then
    echo "job $job is not queued again: nothing was saved in $SECONDS s"
  elif [[ ! $state =~ ' JobState=RUNNING '|' Reason=TimeLimit ' ]]; then
    # scontrol would queue a cancelled job again, too. After preemption Slurm does so itself.
    echo "job $job was cancelled, or Slurm has queued it again"
  elif scontrol requeue "$job"; then
    echo "job $job is queued again"
  else
    echo "job $job is not queued again; submit it again to go on"
  fi
fi
exit "$status"
