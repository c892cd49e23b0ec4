"""Batches of questions: order, padding, steps and processes."""

import pytest
import torch

from vitlab.core.errors import VitlabError
from vitlab.data import question_batches
from vitlab.data.question_batches import QuestionBatches
from vitlab.data.question_catalogue import open_questions
from vitlab.data.question_set import PAD
from vitlab.data.scene_questions import ANSWERS, KINDS, WORDS, questions
from vitlab.data.scenes import draw_scenes

DATA = open_questions("scene_questions(train=10, test=6, questions=3)", image_size=(16, 16))


def feed(**settings):
    return QuestionBatches(DATA.train, len(ANSWERS), DATA.mean, DATA.std, **{"batch_size": 8, **settings})


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_scenes_have_their_questions_and_answers():
    asked = questions(draw_scenes(10, size=16, objects=2), 3)
    for i in range(10):
        for n, (text, answer) in enumerate(asked.text(i)):
            row = 3 * i + n
            assert DATA.train.texts[row] == f"{text}?" and ANSWERS[DATA.train.best_answers()[row]] == answer
            words = [WORDS[token] for token in DATA.train.tokens[row, 1:].tolist() if token != PAD]
            assert " ".join(words) == text and DATA.train.tokens[row, 0] == len(WORDS)
            assert DATA.train.image_of[row] == i and DATA.train.kinds[row] == asked.kinds[i, n]


def test_training_and_test_scenes_differ():
    assert not any(torch.equal(a, b) for a in DATA.train.pictures for b in DATA.test.pictures)


def test_a_batch_is_as_long_as_its_longest_question():
    for batch in feed(batch_size=3).epoch(0):
        lengths = (batch.tokens != PAD).sum(1)
        assert batch.tokens.shape[1] == lengths.max()
        assert torch.equal(batch.inputs()["attention_mask"].sum(1), lengths)


def test_an_epoch_can_start_at_any_batch_and_epochs_differ():
    batches = feed()
    whole = list(batches.epoch(1))
    assert len(whole) == len(batches) == 3
    assert all(same(a, b) for a, b in zip(whole[1:], batches.epoch(1, 1), strict=True))
    assert not same(whole[0], next(batches.epoch(0)))


def test_epochs_of_a_number_of_steps_continue_the_passes():
    passes = [batch for epoch in range(4) for batch in feed().epoch(epoch)]
    short = feed(steps=2)
    stream = [batch for epoch in range(6) for batch in short.epoch(epoch)]
    assert len(short) == 2 and len(stream) == 12
    assert all(same(a, b) for a, b in zip(passes, stream, strict=True))
    assert len(feed(steps=50)) == 50  # longer than a pass
    assert len(feed(batch_size=64, steps=5)) == 0  # no full batch


def test_a_pass_is_shuffled_once_not_once_per_batch(monkeypatch):
    """Memory and time of an epoch grow with its questions, not with questions times batches."""
    shuffled = []
    monkeypatch.setattr(
        question_batches, "epoch_order", lambda count, epoch, seed: shuffled.append(epoch) or torch.arange(count)
    )
    assert len(list(feed(batch_size=1).epoch(0))) == len(DATA.train) and shuffled == [0]
    assert len(list(feed(batch_size=1, steps=2 * len(DATA.train)).epoch(0))) == 2 * len(DATA.train)
    assert shuffled == [0, 0, 1]


def test_processes_divide_a_batch():
    whole = next(feed().epoch(0))
    shares = [next(feed(rank=rank, world=2).epoch(0)) for rank in (0, 1)]
    for rank, share in enumerate(shares):
        assert torch.equal(share.images, whole.images[rank::2]) and torch.equal(share.targets, whole.targets[rank::2])
    with pytest.raises(VitlabError, match="multiple of the 3 processes"):
        feed(world=3)


def test_evaluation_covers_every_question_once():
    rows = torch.cat([r for rank in (0, 1) for _, r in feed(rank=rank, world=2).evaluation()])
    assert sorted(rows.tolist()) == list(range(len(DATA.train)))


def test_priors_are_the_most_frequent_answers_of_training():
    priors, best = DATA.priors(), DATA.train.best_answers().tolist()
    for kind in range(len(KINDS)):
        given = [answer for answer, own in zip(best, DATA.train.kinds.tolist(), strict=True) if own == kind]
        if given:
            assert given.count(int(priors[kind])) == max(map(given.count, given))
        else:
            assert priors[kind] == -1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scene_question", "did you mean 'scene_questions'"),
        ("scene_questions(objects=9)", "objects=9"),
        ("scene_questions(object=1)", "did you mean 'objects'"),
        ("vqav2(path='/nowhere')", "no folder /nowhere"),
    ],
)
def test_mistakes_in_an_expression_are_one_line(text, message):
    with pytest.raises(VitlabError, match=".") as error:
        open_questions(text)
    assert message in str(error.value) and "\n" not in str(error.value)
