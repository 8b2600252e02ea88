from explore._messages import complain, note


def test_a_message_is_one_line_whatever_is_in_it(capsys):
    note("two\nlines\r\nof\u2028text")
    complain("error: a name with \x1b[2J and \x07 and \u202e in it")
    assert capsys.readouterr().err.splitlines() == [
        "explore: note: two lines of text",
        "explore: error: a name with �[2J and � and � in it",
    ]


def test_letters_of_all_languages_are_shown(capsys):
    complain("error: there is no run folder läufe/экс 1")
    assert capsys.readouterr().err == "explore: error: there is no run folder läufe/экс 1\n"
