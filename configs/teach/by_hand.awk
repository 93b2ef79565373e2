# by_hand.awk: reads what `weft train configs/teach.ini --print-values N` has printed, computes the same once more from
# nothing but the formulas of the model, the loss and AdamW, and prints both.

function abs(a) { return a < 0 ? -a : a }

# A row: what it is, its formula with the numbers put in, what Weft says at `key`, what the hand says.
function row(name, formula, key, hand,    weft, differs) {
    if (!(key in said)) { print "by_hand.awk: Weft said nothing of " key; bad = 1; return }
    weft = said[key]
    differs = abs(weft - hand) > 2e-6 * abs(hand)
    printf "  %-7s %-44s %12.7g %12.7g%s\n", name, formula, weft, hand, differs ? "  DIFFERENT" : ""
    if (differs) bad = 1
}
function f(number) { return sprintf("%.7g", number) }

function one_step(t,    at, i, p, dy, dh, g, h, lr) {
    at = "step " t "  "
    lr = 0.1
    h[0] = log(3)
    printf "step %d\n", t
    printf "  %-7s %-44s %12s %12s\n", "forward", "", "weft", "by hand"
    row("x", "the row of embed for the id of x: ln 3", at "FORWARD embed micro-batch 0  carry", h[0])
    for (i = 1; i <= 3; i++) {
        h[i] = w[i] * h[i - 1]
        row("h" i, "w" i " " (i == 1 ? "x" : "h" i - 1) " = " f(w[i]) " * " f(h[i - 1]), at "FORWARD w" i " micro-batch 0  carry", h[i])
    }
    p = 1 / (1 + exp(-h[3]))
    row("loss", "-ln p,  p = 1 / (1 + e^-h3) = " f(p), at "BACKWARD head micro-batch 0  loss", -log(p))
    print "  backward"
    dh[3] = p - 1
    row("dL/dh3", "p - 1", at "BACKWARD head micro-batch 0  carry, gradient", dh[3])
    for (i = 3; i >= 1; i--) {
        g[i] = dh[i] * h[i - 1]
        row("dL/dw" i, "dL/dh" i " * " (i == 1 ? "x" : "h" i - 1) " = " f(dh[i]) " * " f(h[i - 1]), \
            at "BACKWARD w" i " micro-batch 0  w" i ".weight, gradient", g[i])
        dh[i - 1] = dh[i] * w[i]
        if (i > 1) row("dL/dh" i - 1, "dL/dh" i " * w" i " = " f(dh[i]) " * " f(w[i]), at "BACKWARD w" i " micro-batch 0  carry, gradient", dh[i - 1])
    }
    row("norm", "the root of the sum of the three squares", at "NORM  norm", sqrt(g[1] ^ 2 + g[2] ^ 2 + g[3] ^ 2))
    for (i = 1; i <= 3; i++) {
        print "  Adam, w" i
        m_old = m[i]; v_old = v[i]
        m[i] = 0.9 * m[i] + 0.1 * g[i]
        v[i] = 0.999 * v[i] + 0.001 * g[i] ^ 2
        row("m" i, "0.9 * " f(m_old) " + 0.1 * " f(g[i]), at "STEP  w" i ".weight, exp_avg", m[i])
        row("v" i, "0.999 * " f(v_old) " + 0.001 * " f(g[i]) "^2", at "STEP  w" i ".weight, exp_avg_sq", v[i])
        m_hat = m[i] / (1 - 0.9 ^ t)
        v_hat = v[i] / (1 - 0.999 ^ t)
        old = w[i]
        w[i] -= lr * m_hat / (sqrt(v_hat) + 1e-8)
        row("w" i, f(old) " - 0.1 * " f(m_hat) " / " f(sqrt(v_hat)), at "STEP  w" i ".weight, weight", w[i])
    }
    print ""
}

# "step 1  FORWARD w1 micro-batch 0  carry  2.197225"
$1 ~ /^step [0-9]+$/ && NF >= 4 { said[$1 "  " $2 "  " $3] = $4 }

END {
    w[1] = 2; w[2] = 0.5; w[3] = 1
    for (t = 1; t <= steps; t++) one_step(t)
    if (bad) print "Weft and the hand differ."
    else print "Every number of Weft is that of the hand."
    exit bad
}
