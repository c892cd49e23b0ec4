"""Visual question answering: creates the model, batches, loss and accuracy of a recipe for the training loop.

Shape legend: B batch, A answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitlab import zoo
from vitlab.adapters import describe
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_model
from vitlab.core.recipe import Recipe
from vitlab.core.store import Run
from vitlab.data.order import evenly
from vitlab.data.question_batches import QuestionBatch, QuestionBatches
from vitlab.data.question_catalogue import open_questions
from vitlab.data.question_set import QuestionData
from vitlab.eval_mode import eval_mode
from vitlab.preprocessing import Preprocessing
from vitlab.progress import waiting
from vitlab.tasks.unused_settings import check_unused_settings
from vitlab.training.distributed import World, process_group, sum_over_ranks
from vitlab.training.loop import train


def run(
    recipe: Recipe,
    out: str | Path,
    *,
    root: str | Path | None = None,
    device: str | None = None,
    show: bool = False,
    log: Callable[[dict[str, Any]], None] | None = None,
    compile_on_cpu: bool = False,
) -> dict[str, Any]:
    """Train ViLT to answer questions with a recipe in the folder `out`; resumes if the folder has a checkpoint.

    Args:
        recipe: the training run. Its `image_size` is the size of generated images; files are resized to the shorter
            side `image_size[0]`, with a longer side of at most `image_size[1]`.
        out: the run folder.
        root: folder of the data sets; by default the environment variable VITLAB_DATA.
        device: `cpu` or `cuda`; by default CUDA if available.
        show: whether to show a progress bar on stderr.
        log: called with each row of metrics.
        compile_on_cpu: not used: ViLT is not compiled.

    Returns:
        The last row of metrics; see `Accuracy`.
    """
    if recipe.compile:
        raise VitlabError(
            "compile=True does not work with ViLT, which selects the patches of each image by number; set compile=False"
        )
    check_unused_settings(recipe, "question answering", (), {"augment.crop": "none", "augment.flip": 0.0})
    with process_group(device) as world:
        with waiting("reading questions", show=show and world.is_main):
            data = open_questions(recipe.data, root=root, image_size=recipe.image_size)
        if recipe.evaluate_images:
            data = replace(data, test=data.test.subset(evenly(len(data.test), recipe.evaluate_images)))
        recipe = replace(recipe, model=with_answers(recipe.model, data))
        model = zoo.load(recipe.model, seed=recipe.seed).to(world.device)
        feed = batches(recipe, data, world, model)
        describe(model)  # fails early, with one line, for a model that does not run
        about = {
            "preprocessing": _preprocessing(recipe, data).record(),
            "classes": data.answers,
            "recipe": asdict(recipe),
        }
        test = Accuracy(data, replace(feed, questions=data.test), world, recipe.precision)
        options: dict[str, Any] = {"world": world, "show": show, "log": log}
        return train(recipe, model, feed, loss, test, Run(Path(out)), about=about, **options)


def with_answers(expression: str, data: QuestionData) -> str:
    """Returns the model expression with the numbers of answers and of token ids of the data, unless it sets them.

    >>> from vitlab.data.question_catalogue import open_questions
    >>> with_answers("vitlab/vilt", open_questions("scene_questions(train=1, test=1)"))
    'vitlab/vilt(num_labels=29, vocab_size=38)'
    """
    parsed = parse_model(expression)
    if parsed.source == "file":
        return expression
    sizes = {"num_labels": len(data.answers), "vocab_size": data.vocabulary}
    if parsed.source == "hf":
        del sizes["vocab_size"]  # the folder has its own, which belongs to its tokenizer
    for name, needed in sizes.items():
        own = parsed.settings.get(name, needed)
        if not isinstance(own, int) or own < needed:
            raise VitlabError(f"{expression!r} has {name}={own}, but the data needs {needed}; omit {name}")
    return str(replace(parsed, settings={**sizes, **parsed.settings}))


def batches(recipe: Recipe, data: QuestionData, world: World, model: Any) -> QuestionBatches:
    """Returns the source of training batches."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", "") != "vilt" or not hasattr(model, "classifier"):
        raise VitlabError(f"{recipe.model!r} does not answer questions; use vitlab/vilt, or hf/FOLDER of such a model")
    words, longest = config.vocab_size, config.max_position_embeddings
    if words < data.vocabulary or longest < data.train.tokens.shape[1]:
        raise VitlabError(
            f"{recipe.model!r} has vocab_size={words} and max_position_embeddings={longest}, but the questions have "
            f"{data.vocabulary} token ids and up to {data.train.tokens.shape[1]} tokens; increase them"
        )
    return QuestionBatches(
        data.train,
        model.classifier[-1].out_features,
        data.mean,
        data.std,
        recipe.image_size,
        config.patch_size,
        recipe.batch_size,
        recipe.seed,
        recipe.steps_per_epoch,
        world.rank,
        world.size,
        world.device,
    )


def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """ViLT's loss: the binary cross entropy of each answer with its score, summed over answers, mean over the batch."""
    images, mask, tokens, targets = batch
    question = QuestionBatch(images, mask, tokens, targets)
    value: Tensor = model(**question.inputs(), labels=targets).loss
    return value


def _preprocessing(recipe: Recipe, data: QuestionData) -> Preprocessing:
    size = recipe.image_size
    return Preprocessing(size, data.mean, data.std, 1.0, classes=data.answers, source="recipe of question answering")


@dataclass(frozen=True)
class Accuracy:
    """Loss and accuracy on the test questions, overall and by kind, with the accuracy of the prior.

    The prior answers each question with the most frequent answer to training questions of its kind. Sums are exact
    over all ranks. Names of metrics: `loss`, `accuracy`, `prior`, `above_prior` (the mean over kinds of accuracy −
    prior), `accuracy_KIND`, `prior_KIND`, `questions`; accuracies in per cent.
    """

    data: QuestionData
    feed: QuestionBatches
    world: World
    precision: str = "float32"

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Returns the metrics (collective)."""
        kinds, questions = len(self.data.kinds), self.data.test
        kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(self.precision)
        sums = torch.zeros(3, kinds, dtype=torch.float64)  # accuracy, prior and number of questions, by kind
        total = torch.zeros((), dtype=torch.float64)
        priors = self.data.priors()
        with eval_mode(model):
            for batch, rows in self.feed.evaluation():
                with torch.autocast(self.world.device.type, kind, enabled=kind is not None):
                    output: Any = model(**batch.inputs(), labels=batch.targets)
                asked = questions.kinds[rows]
                chosen = questions.subset(rows)
                right = chosen.accuracy_of(output.logits.argmax(1).cpu())
                guessed = chosen.accuracy_of(priors[asked])
                for place, values in enumerate((right, guessed, torch.ones(len(rows)))):
                    sums[place].index_add_(0, asked, values.double())
                total += output.loss.double().cpu() * len(rows)
        flat = sum_over_ranks(torch.cat([sums.flatten(), total[None]]).to(self.world.device), self.world).cpu()
        return summary(self.data.kinds, flat[:-1].view(3, kinds), float(flat[-1]))


def summary(kinds: tuple[str, ...], sums: Tensor, loss: float) -> dict[str, float]:
    """Returns the metrics from the sums (3, kinds) of accuracy, prior accuracy and questions.

    >>> metrics = summary(("colour", "count"), torch.tensor([[3.0, 1.0], [1.0, 1.0], [4.0, 2.0]]), 6.0)
    >>> round(metrics["accuracy"], 2), metrics["accuracy_colour"], metrics["above_prior"]
    (66.67, 75.0, 25.0)
    """
    right, guessed, counts = sums.tolist()
    asked = [number for number, count in enumerate(counts) if count]
    every = sum(counts)
    own = {f"accuracy_{kinds[i]}": 100 * right[i] / counts[i] for i in asked}
    prior = {f"prior_{kinds[i]}": 100 * guessed[i] / counts[i] for i in asked}
    above = [100 * (right[i] - guessed[i]) / counts[i] for i in asked]
    overall = {"accuracy": 100 * sum(right) / every, "prior": 100 * sum(guessed) / every}
    return {
        "loss": loss / every,
        **overall,
        "above_prior": sum(above) / len(above),
        **own,
        **prior,
        "questions": every,
    }
