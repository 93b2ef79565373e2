#!/usr/bin/env python3
"""Chess games in text, made by Stockfish playing against itself.

Two kinds of game, one game a line (`1. e4 e5 2. f4 exf4 ... 1-0`), at most 60 moves each:

    base      a few uniformly random moves, then weak play: few nodes, any of five moves, all game long.
              What the small base model is trained on. Not committed; this script makes it again.
    finetune  King's Gambits (1. e4 e5 2. f4), varied for twelve moves and then played as well as the nodes
              allow; the loser resigns. train.txt and heldout.txt, beside this script.

Run it (Debian: apt install stockfish; then a virtual environment with chess==1.11.2):

    make_games.py finetune                  writes train.txt and heldout.txt        (under ten minutes on two cores)
    make_games.py base --out base.txt       needs those two: it leaves out what comes too near to them
    make_games.py check --base base.txt     plays every game over again, and counts what the files share

The games are the same bytes each time with one version of Stockfish (15.1 made those that are kept): one
thread, a fixed number of nodes a move, a cleared hash before each game, and for each game a random source of
its own, keyed by (seed, kind, number of the game). So neither the number of workers nor an interruption
changes them: finished shards lie in --work, and a second run goes on from there.

No held-out game is in what base or fine-tune saw. Equal games are the least of it: a held-out game shares no
position of its plies 20 to 40 with any other file, so it cannot be a known game with two moves exchanged either.
"""

import argparse
import dataclasses
import math
import multiprocessing
import os
import pathlib
import random
import subprocess
import sys
import time

import chess

HERE = pathlib.Path(__file__).resolve().parent
PLAYED_BY = "Stockfish 15.1"
SHARD = 50               # games in a shard: the piece of work that is kept or lost as a whole
MAX_PLIES = 120          # 60 moves, so that nearly every game fits in the model's context
ADJUDICATE = 150         # centipawns that win a game which was stopped at MAX_PLIES
COMPARED = range(20, 41)  # plies whose positions tell games apart: past the opening, before bare endgames
HELD_OUT_EVERY = 12      # of the fine-tune games, by number
KINGS_GAMBIT = (         # lines that are played as often as each other
    "e4 e5 f4 exf4 Nf3 g5",
    "e4 e5 f4 exf4 Nf3 g5 h4 g4 Ne5",
    "e4 e5 f4 exf4 Nf3 g5 Bc4",
    "e4 e5 f4 exf4 Nf3 d5 exd5",
    "e4 e5 f4 exf4 Nf3 d6 d4",
    "e4 e5 f4 exf4 Nf3 Nf6",
    "e4 e5 f4 exf4 Nf3 Be7",
    "e4 e5 f4 exf4 Bc4",
    "e4 e5 f4 exf4 Nc3",
    "e4 e5 f4 d5 exd5",
    "e4 e5 f4 Bc5 Nf3 d6",
    "e4 e5 f4 Nc6 Nf3",
)


@dataclasses.dataclass(frozen=True)
class Kind:
    """How a kind of game is played. Scores and temperatures are in centipawns."""
    name: str
    games: int
    openings: tuple      # a game begins with one of these lines
    random_plies: tuple  # least and most uniformly random plies after them
    nodes: int           # searched for each move
    choices: int         # best moves to choose among, as long as there is a choice
    temperature: float   # a move this much worse than the best is chosen 1/e times as often
    varied_plies: int    # plies with a choice; from then on the best move is played
    resign: int          # a side that is this far behind on two turns running gives up; 0: plays on


KINDS = {
    "base": Kind("base", games=13000, openings=("",), random_plies=(2, 8), nodes=400, choices=5, temperature=90.0,
                 varied_plies=MAX_PLIES, resign=0),
    "finetune": Kind("finetune", games=2600, openings=KINGS_GAMBIT, random_plies=(0, 0), nodes=3000, choices=5,
                     temperature=25.0, varied_plies=24, resign=400),
}


class Engine:
    """One Stockfish process, spoken to in UCI."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.choices = 0
        self.name = " ".join(self.ask("uci", "uciok")[0][:2])
        self.tell("setoption name Threads value 1")
        self.tell("setoption name Hash value 16")

    def tell(self, line):
        self.process.stdin.write(line + "\n")

    def ask(self, line, last):
        """Sends a line; returns what comes back, up to the line that begins with `last`."""
        self.tell(line)
        answer = []
        for reply in self.process.stdout:
            answer.append(reply.split())
            if reply.startswith(last):
                return answer
        raise RuntimeError(f"stockfish ended in the middle of '{line}'; run it by hand to see why")

    def new_game(self):
        self.tell("ucinewgame")
        self.ask("isready", "readyok")

    def best_moves(self, played, nodes, choices):
        """[(move, score for the side to move)], best first, after the moves `played`."""
        if choices != self.choices:
            self.tell(f"setoption name MultiPV value {choices}")
            self.choices = choices
        self.tell("position startpos moves " + " ".join(played))
        answer = self.ask(f"go nodes {nodes}", "bestmove")
        rounds = []
        for words in answer:
            if "multipv" not in words or "score" not in words or "pv" not in words:
                continue
            score = words.index("score")
            if words[words.index("multipv") + 1] == "1":
                rounds.append([])
            rounds[-1].append((words[words.index("pv") + 1], centipawns(words[score + 1], int(words[score + 2]))))
        if choices == 1:
            return [(answer[-1][1], rounds[-1][0][1])]
        # The nodes run out in the middle of the last round, whose scores then stand for depths that were not
        # reached: a sampled move is drawn from the round before it.
        return rounds[-2] if len(rounds) > 1 else rounds[-1]


def centipawns(unit, value):
    if unit == "mate":
        return 32000 - value if value > 0 else -32000 - value
    return value


def choose(moves, temperature, source):
    """One of [(move, score)], by a softmax over scores."""
    best = max(score for _, score in moves)
    weights = [math.exp((score - best) / temperature) for _, score in moves]
    point = source.random() * sum(weights)
    for (move, _), weight in zip(moves, weights):
        point -= weight
        if point < 0:
            return move
    return moves[0][0]


def opening(kind, source):
    """The moves that a game begins with: a line of the kind, then random ones that do not end it."""
    board = chess.Board()
    for move in kind.openings[int(source.random() * len(kind.openings))].split():
        board.push_san(move)
    least, most = kind.random_plies
    for _ in range(least + int(source.random() * (most - least + 1))):
        legal = sorted(move.uci() for move in board.legal_moves)
        board.push_uci(legal[int(source.random() * len(legal))])
        if board.is_game_over():
            board.pop()
            break
    return [move.uci() for move in board.move_stack]


def ended(board):
    """The result that stands on the board, or None while the game goes on."""
    if not any(board.legal_moves):
        return ("0-1" if board.turn else "1-0") if board.is_check() else "1/2-1/2"
    drawn = board.is_insufficient_material() or board.halfmove_clock >= 100 or board.is_repetition(3)
    return "1/2-1/2" if drawn else None


def won(white):
    return "1-0" if white else "0-1"


def adjudicated(board, score):
    """The result of a game that was stopped; `score` is that of the side to move."""
    if abs(score) < ADJUDICATE:
        return "1/2-1/2"
    return won(board.turn == (score > 0))


def play(engine, kind, seed, number):
    """Game `number` of a kind, as a line of text."""
    source = random.Random(f"{seed}/{kind.name}/{number}")
    played = opening(kind, source)
    board, words = chess.Board(), []
    behind = {chess.WHITE: 0, chess.BLACK: 0}
    engine.new_game()
    while (result := ended(board)) is None:
        if len(words) >= len(played):
            varied = len(words) < kind.varied_plies
            moves = engine.best_moves(played, kind.nodes, kind.choices if varied else 1)
            score = max(score for _, score in moves)
            behind[board.turn] = behind[board.turn] + 1 if kind.resign and score <= -kind.resign else 0
            if behind[board.turn] == 2:
                result = won(not board.turn)
                break
            if len(words) >= MAX_PLIES:
                result = adjudicated(board, score)
                break
            played.append(choose(moves, kind.temperature, source))
        words.append(board.san_and_push(chess.Move.from_uci(played[len(words)])))
    return line_of(words, result)


def line_of(words, result):
    """['e4', 'e5', 'f4'], '1-0'  ->  '1. e4 e5 2. f4 1-0'"""
    numbered = [f"{i // 2 + 1}. {word}" if i % 2 == 0 else word for i, word in enumerate(words)]
    return " ".join(numbered + [result])


# Worker processes: each has one engine, and plays whole shards.

worker_engine = None


def start_worker(path):
    global worker_engine
    os.nice(10)
    worker_engine = Engine(path)


def play_shard(task):
    """Plays the games of a shard, unless its file is there; returns the file's path."""
    kind, seed, shard, path = task
    if not path.exists():
        last = min(kind.games, (shard + 1) * SHARD)
        lines = [play(worker_engine, kind, seed, number) for number in range(shard * SHARD, last)]
        part = path.with_suffix(f".part{os.getpid()}")
        part.write_text("".join(line + "\n" for line in lines))
        part.rename(path)
    return path


def warn_of_version(path):
    """Says so where the games will be other ones; ends here, not in every worker, where there is no Stockfish."""
    try:
        name = Engine(path).name
    except OSError as error:
        sys.exit(f"{path} does not start ({error.strerror}); install the package stockfish, or say --stockfish PATH")
    print(f"{name} plays" + ("" if name == PLAYED_BY else f"; {PLAYED_BY} played what is kept: expect other games"))


def play_all(kind, options):
    """All games of a kind in order, in as many processes as asked for."""
    folder = options.work / f"{kind.name}-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "settings"
    if settings.exists() and settings.read_text() != repr(kind):
        sys.exit(f"{folder} holds games played with other settings; remove it, or name another folder with --work")
    settings.write_text(repr(kind))
    shards = range(math.ceil(kind.games / SHARD))
    tasks = [(kind, options.seed, shard, folder / f"{shard:05}.txt") for shard in shards]
    warn_of_version(options.stockfish)
    begin = time.monotonic()
    with multiprocessing.Pool(options.workers, start_worker, (options.stockfish,)) as pool:
        for done, _ in enumerate(pool.imap_unordered(play_shard, tasks), 1):
            if done % 10 == 0 or done == len(tasks):
                print(f"{kind.name}: {min(done * SHARD, kind.games)} of {kind.games} games, "
                      f"{time.monotonic() - begin:.0f} s", flush=True)
    return [line for task in tasks for line in task[3].read_text().splitlines()]


# What the files may not share.

def moves_of(line):
    return [word for word in line.split()[:-1] if not word.endswith(".")]


def positions_of(line):
    """The positions after the plies COMPARED; the last one where a game is shorter, so that every game has one."""
    board, found = chess.Board(), []
    for ply, word in enumerate(moves_of(line)[:COMPARED[-1]], 1):
        board.push_san(word)
        if ply >= COMPARED[0]:
            found.append(board.epd())
    return set(found or [board.epd()])


class Seen:
    """The games and positions of the files read so far."""

    def __init__(self):
        self.games, self.positions = set(), set()

    def add(self, line, positions):
        self.games.add(line.rsplit(" ", 1)[0])
        self.positions |= positions

    def has(self, line):
        return line.rsplit(" ", 1)[0] in self.games

    def near(self, positions):
        return not self.positions.isdisjoint(positions)


def report(name, lines):
    plies = sorted(len(moves_of(line)) for line in lines)
    results = {result: sum(line.endswith(" " + result) for line in lines) for result in ("1-0", "0-1", "1/2-1/2")}
    print(f"{name}: {len(lines)} games, {sum(len(line) + 1 for line in lines)} bytes, plies median "
          f"{plies[len(plies) // 2]} p95 {plies[len(plies) * 95 // 100]} most {plies[-1]}, "
          + ", ".join(f"{result} {count}" for result, count in results.items()))


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines))
    report(path.name, lines)


def make_finetune(options):
    lines = play_all(KINDS["finetune"], options)
    seen, train, heldout, dropped = Seen(), [], [], 0
    for line in (line for number, line in enumerate(lines) if number % HELD_OUT_EVERY):
        if not seen.has(line):
            seen.add(line, positions_of(line))
            train.append(line)
    for line in lines[::HELD_OUT_EVERY]:
        positions = positions_of(line)
        if seen.has(line) or seen.near(positions):
            dropped += 1
            continue
        seen.add(line, positions)
        heldout.append(line)
    print(f"left out: {len(lines) - len(train) - len(heldout) - dropped} equal games of train, "
          f"{dropped} held-out games with a position of plies {COMPARED[0]}-{COMPARED[-1]} seen before")
    write(options.folder / "train.txt", train)
    write(options.folder / "heldout.txt", heldout)


def make_base(options):
    tuned = Seen()
    for name in ("train.txt", "heldout.txt"):
        for line in (options.folder / name).read_text().splitlines():
            tuned.add(line, positions_of(line))
    seen, kept, gambits, near, equal = Seen(), [], 0, 0, 0
    for line in play_all(KINDS["base"], options):
        positions = positions_of(line)
        if line.startswith("1. e4 e5 2. f4 "):
            gambits += 1
        elif tuned.near(positions):
            near += 1
        elif seen.near(positions):
            equal += 1
        else:
            seen.add(line, positions)
            kept.append(line)
    print(f"left out: {gambits} King's Gambits, {near} games with a position of train or heldout, "
          f"{equal} with a position of an earlier base game")
    write(options.out, kept)


def check(options):
    """Plays the files' games over; returns whether all are legal and no held-out game was seen elsewhere."""
    paths = [options.folder / "heldout.txt", options.folder / "train.txt"] + ([options.base] if options.base else [])
    held, bad = Seen(), 0
    for path in paths:
        lines, equal, near = path.read_text().splitlines(), 0, 0
        report(path.name, lines)
        for number, line in enumerate(lines, 1):
            if (complaint := illegal(line)) is not None:
                print(f"{path}:{number}: {complaint}")
                bad += 1
                continue
            positions = positions_of(line)
            equal += held.has(line)
            near += held.near(positions)
            if path is paths[0]:
                held.add(line, positions)
        print(f"  shared with {'earlier games of it' if path is paths[0] else 'heldout.txt'}: {equal} games, "
              f"{near} games with a position of plies {COMPARED[0]}-{COMPARED[-1]}")
        bad += equal + near
    print("all games are legal, and no held-out game was seen" if bad == 0 else f"{bad} games are wrong")
    return bad == 0


def illegal(line):
    """What is wrong with a line, or None."""
    words, result = moves_of(line), line.rsplit(" ", 1)[-1]
    board = chess.Board()
    for word in words:
        try:
            board.push_san(word)
        except ValueError as error:
            return str(error)
    if line != line_of(words, result) or len(words) > MAX_PLIES or result not in ("1-0", "0-1", "1/2-1/2"):
        return "not in the form '1. e4 e5 2. f4 ... 1-0', or too long"
    if (stands := ended(board)) is not None and stands != result:
        return f"the board says {stands}, the line {result}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["finetune", "base", "check"])
    parser.add_argument("--folder", type=pathlib.Path, default=HERE, help="where train.txt and heldout.txt lie")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("base.txt"), help="file of `base`")
    parser.add_argument("--base", type=pathlib.Path, help="base games, for `check`")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/weft-chess"), help="for shards")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stockfish", default="/usr/games/stockfish")
    options = parser.parse_args()
    if options.command == "check":
        return 0 if check(options) else 1
    (make_finetune if options.command == "finetune" else make_base)(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
