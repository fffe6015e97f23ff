"""What is known of a training in words, for the page and the text."""
from .units import number, percent, plain, plural, seconds, size


def in_words(found):
    """Yields (name, text). found: numbers of the training."""
    loss, norm, rate = found["loss"], found["gradient_norm"], found["learning_rate"]
    took, lora, samples = found["step_seconds"], found["lora"], found["samples"]
    planned = "" if found["planned_steps"] is None else f' of {number(found["planned_steps"])}'
    batch = "" if found["batch"] is None else f', {plural(found["batch"], "clip")} each'
    yield "steps", number(found["steps"]) + planned + batch
    if found["lost_steps"]:
        yield "", f'{plural(found["lost_steps"], "step")} without values: the job was killed'
    if found["not_finite_steps"]:
        yield "", f'the loss of {number(found["not_finite_steps"])} steps is not finite'
    if loss["last"] is not None or loss["first"] is not None:
        of = f'means of {loss["window"]} steps' if loss["window"] > 1 else "of single steps"
        yield "loss", (f'{plain(loss["first"])} at first, {plain(loss["last"])} at last, lowest '
                       f'{plain(loss["lowest"])}; {of}')
    if found["validation"] is not None:
        value = found["validation"]
        yield "validation loss", (
            f'{plain(value["loss"][0])} after {number(value["steps"][0])} steps, '
            f'{plain(value["loss"][-1])} after {number(value["steps"][-1])}, lowest '
            f'{plain(value["lowest"])} after {number(value["lowest_step"] or 0)}')
    if found["loss_by_quarter"] is not None:
        value = found["loss_by_quarter"]
        yield "loss by timestep", "; ".join(
            f'{one["timesteps"][0]} to {one["timesteps"][1]}: {plain(one["first"])} → '
            f'{plain(one["last"])}' for one in value["quarters"]) + (
                f'; means of up to {number(value["window"])} steps')
    if norm["median"] is not None:
        limited = ("" if norm["limited"] is None else f'; scaled down to {plain(norm["limit"])} '
                   f'in {percent(norm["limited"])} of the steps')
        yield "gradient norm", f'median {plain(norm["median"])}, max {plain(norm["max"])}{limited}'
    if rate["max"] is not None:
        yield "learning rate", f'up to {plain(rate["max"])}, {plain(rate["last"])} in the last step'
    if took["median"] is not None:
        yield "time of a step", (f'median {seconds(took["median"])}; 5 to 95 %: '
                                 f'{seconds(took["p05"])} to {seconds(took["p95"])}')
    if found["clips_per_hour"] is not None:
        yield "clips per hour", plain(found["clips_per_hour"])
    if found["seconds_left"]:
        yield "steps left", f'{seconds(found["seconds_left"])} at this rate'
    if samples is not None:
        epochs = ("" if found["epochs"] is None else
                  f', each used {plain(found["epochs"])} times on average')
        yield "samples", f'{number(samples["count"])} encoded{epochs}'
    if found["made"] is not None:
        steps = found["made"]["steps"]
        yield "clips made", (f'after {number(steps[0])} steps' if len(steps) == 1 else
                             f'{plural(len(steps), "time")}, after {number(steps[0])} to '
                             f'{number(steps[-1])} steps')
    if found["kept"]:
        yield "kept", f'after {", ".join(number(one["step"]) for one in found["kept"])} steps'
    if found["method"] == "full":
        yield "trained", "all weights of the transformer"
        yield "file", (f'{lora["file"]}, {size(lora["bytes"])}' if lora["file"] else
                       "no transformer has been written yet")
        return
    def others(pattern):
        return f" ({pattern})" if pattern else ""
    rank = str("?" if lora["rank"] is None else lora["rank"]) + others(lora["rank_pattern"])
    alpha = "" if lora["alpha"] is None else f', alpha {plain(lora["alpha"])}'
    yield "LoRA", (f'rank {rank}{alpha}{others(lora["alpha_pattern"])}, of '
                   f'{", ".join(lora["targets"]) or "?"}')
    yield "file", (f'{lora["file"]}, {size(lora["bytes"])}' if lora["file"] else
                   "no LoRA has been written yet")
