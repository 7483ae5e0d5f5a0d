"""Function words that a query is better asked without. Only words that mean little in every one of these languages: `die`,
`man`, `can` or `son` are content somewhere, and their high document frequency makes them light anyway."""

from __future__ import annotations

_ENGLISH = """
    a an the this that these those and or but nor if then than so as of at by for with about against between into through
    during before after to from in out on off over under again here there is are was were be been being am do does did doing
    have has had having i me my myself we our ours us you your yours he him his she her hers it its they them their theirs
    what which who whom whose when where why how would could should shall may might must not no only own same too very just
    also any all each some such
    don't doesn't didn't isn't aren't wasn't weren't i'm i've it's that's there's what's who's you're we're they're
"""
_GERMAN = """
    der das den dem des ein eine einen einem einer eines und oder aber nicht ist sind wird werden wurde wurden mit von vom zu
    zum zur für auf bei aus nach wie wenn dass sich auch nur noch kann können welche welcher welches wer wann warum
"""
_FRENCH = """
    le la les un une des du de et ou mais dans pour par avec sur est sont été être qui que quoi quel quelle quels quelles où
    quand comment pourquoi ce cette ces au aux il elle ils elles
"""
_SPANISH = """
    el los las una unos unas del y o pero en para por con sobre es son fue ser qué cuál cuáles quién quiénes cuándo dónde cómo
    por qué este esta estos estas al se su sus
"""

# Words that tell a language and may be content in another: only counted, never left out.
_TELLING = """
    die was hat haben sie ihr ihre man wo wessen wen wem viele als am im ins sein seine nach über unter durch gegen ohne zwischen
    en les dont où combien ses leur leurs ont avait cela dans entre sans sous plus
    il lo gli una uno dei delle della dello nel nella che chi di da per come quando perché quale quali sono è
    la las los qué cuántos cuánto entre sin más muy fue fueron
    o os as do da dos das no na nos nas um uma que quem qual quais onde como quando não são foi
    de het een en van ik te dat op zijn met voor niet aan er om ook als bij wat waar hoe welke
    och att det som är för inte med av vad hur vilka
"""

ENGLISH: frozenset[str] = frozenset(_ENGLISH.split())
"""Function words of English, case folded."""
ELSEWHERE: frozenset[str] = frozenset(f"{_GERMAN} {_FRENCH} {_SPANISH} {_TELLING}".split()) - ENGLISH
"""Function words of other European languages that are none of English, case folded."""

STOP_WORDS: frozenset[str] = frozenset(f"{_ENGLISH} {_GERMAN} {_FRENCH} {_SPANISH}".split())
"""Case folded."""
