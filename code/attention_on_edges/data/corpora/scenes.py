"""What can be seen in the caption corpus: who does what to whom, where, and how.

Columns: English participle | German verb, third person singular and plural, and its particle | who |
accusative object | dative object | where | where to | how. An underscore ends a particle that is a word of
its own. Lists may name classes of the lexicon; an indented line goes on from the one before it.
"""

from attention_on_edges.data.corpora.lexicon import read_scenes

SCENES = read_scenes("""
sleeping | schläft schlafen | people | | | on sofa, in bed, on bench, under tree, in tent | |
sleeping | schläft schlafen | pets | | | on sofa, under table, in front of door, on bed | |
sleeping | schläft schlafen | cattle | | | under tree, in meadow, behind house | |
sitting | sitzt sitzen | people | | | on bench, on sofa, under tree, at table, in boat, at window | |
sitting | sitzt sitzen | cat, bird, monkey | | | on roof, on wall, on fence, at window | |
standing | steht stehen | people | | | on bridge, in front of church, at window, next to car, on stage | |
standing | steht stehen | cattle | | | in meadow, next to tree, behind fence, in field | |
lying | liegt liegen | people | | | on beach, in meadow, on sofa, in bed, in boat | |
lying | liegt liegen | pets | | | under table, on bed, in front of door, in garden | |
waiting | wartet warten | people, dog | | | in front of school, at station, in front of house, in car | |
dancing | tanzt tanzen | people | | | on stage, in street, in park, on beach, in kitchen | | happily, slowly
singing | singt singen | people | | | on stage, in church, in street, in garden | | quietly, happily
laughing | lacht lachen | people | | | in park, in school, in kitchen, in café | | quietly
cooking | kocht kochen | people | | | in kitchen, in garden, in front of tent, on beach | |
working | arbeitet arbeiten | adults | | | in garden, in field, in library, on roof, in kitchen | |
    quietly, quickly
playing | spielt spielen | children, pets | | | in garden, in playground, in park, on beach | | happily,
    quietly
swimming | schwimmt schwimmen | people, dog, duck | | | in lake, in river | | slowly, quickly
cycling | fährt fahren Fahrrad_ | people | | | in park, in street, in town | | slowly, quickly
playing football | spielt spielen Fußball_ | people | | | in park, on beach, in garden, in playground | |
playing the guitar | spielt spielen Gitarre_ | people | | | on stage, in park, on sofa, in street | |
    quietly
playing cards | spielt spielen Karten_ | people | | | at table, in café, in garden, in tent | |
listening to music | hört hören Musik_ | people | | | in park, on sofa, in café, in bed | |
drinking coffee | trinkt trinken Kaffee_ | adults | | | in café, in kitchen, on bench, at window | |
eating ice cream | isst essen Eis_ | people | | | in park, in front of café, on beach, on bench | |
watching television | sieht sehen fern | people | | | on sofa, in bed, in kitchen | |
shopping | kauft kaufen ein | adults | | | at market, in town | |
getting up | steht stehen auf | people | | | | | slowly, quickly
running away | läuft laufen weg | people, animals | | | | | quickly
washing up | wäscht waschen ab | people | | | in kitchen | | carefully, quickly
tidying up | räumt räumen auf | people | | | in kitchen, in library, in garden, in tent | | quickly, slowly
reading | liest lesen | people | papers | | in garden, in library, on sofa, in bed, in café | | quietly
writing | schreibt schreiben | people | letter, story | | at table, in library, in garden | | slowly
eating | isst essen | people | food | | in kitchen, in park, on bench, in café | | slowly, quickly
eating | frisst fressen | cattle, monkey, dog | apple, banana | | in garden, under tree, in meadow | |
    slowly, quickly
buying | kauft kaufen | adults | food, flower, papers, headgear | | at market, in town | |
washing | wäscht waschen | people | car, dog, shirt, jumper | | in garden, at lake, behind house | |
    carefully
cleaning | putzt putzen | people | window, bicycle, table, lamp | | | | quickly, carefully
painting | malt malen | people | picture, tree, horse, flower, church | | in garden, at lake, in park | |
repairing | repariert reparieren | adults | vehicles, chair, roof, fence | | | | carefully, quickly
building | baut bauen | children, father, mother | snowman, tower | | in garden, in playground, in park | |
feeding | füttert füttern | people | animals | | in park, in garden, in meadow | | carefully
stroking | streichelt streicheln | people | pets, cattle | | in garden, in meadow, on bench | | carefully
brushing | bürstet bürsten | people | horse, dog | | in garden, in meadow | | slowly, carefully
photographing | fotografiert fotografieren | people | buildings, animals, flower | | | |
watching | beobachtet beobachten | people, pets | fowl, rabbit, monkey | | in garden, in park, at window | |
chasing | jagt jagen | dog, cat | rabbit, bird, cat | | | through garden, around house, across street |
hugging | umarmt umarmen | people | people | | at station, in front of house, in kitchen | | happily
visiting | besucht besuchen | people | people | | in town | |
looking for | sucht suchen | people | belongings, ball, book, pets | | in park, in house, in street | |
holding | hält halten | people | belongings, toys, flower, cup | | | |
hiding | versteckt verstecken | people | toys, egg, letter | | under bed, behind tree, in box | |
parking | parkt parken | adults | vehicles | | in front of house, behind church, in street | | carefully
wearing | trägt tragen | people | clothes, headgear | | | |
putting on | zieht ziehen an | people | clothes | | | | slowly, quickly
putting on | setzt setzen auf | people | headgear | | | | slowly, quickly
taking off | zieht ziehen aus | people | clothes | | | | slowly, quickly
taking off | setzt setzen ab | people | headgear | | | | slowly, quickly
opening | macht machen auf | people | fixtures, bottle | | | | quietly, slowly, carefully
closing | macht machen zu | people | fixtures, bottle | | | | quietly, slowly, carefully
picking up | hebt heben auf | people | ball, stone, book, doll | | in garden, in street, in playground | |
    slowly, quickly
putting up | baut bauen auf | people | tent | | in garden, in meadow, on beach | | slowly, quickly
looking at | schaut schauen an | people | pictures, church, tower | | in library, in town | |
switching on | schaltet schalten ein | people | lamp | | in kitchen, in library | |
switching off | schaltet schalten aus | people | lamp | | in kitchen, in library | |
locking | schließt schließen ab | people | door, car, house, bicycle | | | | carefully, quickly
unpacking | packt packen aus | people | bag, rucksack, box | | in kitchen, in tent, at station | | slowly,
    quickly
phoning | ruft rufen an | people | people | | | |
inviting | lädt laden ein | people | people | | | |
helping | hilft helfen | people | | people | in kitchen, in garden, at station | |
thanking | dankt danken | people | | people | | | quietly
following | folgt folgen | people, pets | | people, pets, duck | | into house, through park, across bridge
    | slowly
waving to | winkt winken zu | people | | people | at window, at station, on beach | | happily
listening to | hört hören zu | people | | people | in school, in church, in café | |
running after | läuft laufen nach | children, dog | | pets, rabbit, duck | in garden, in park, in meadow | |
giving | gibt geben | people | food, papers, flower, toys | people | in garden, in kitchen, at station | |
giving | gibt geben | people | apple, banana | cattle, monkey | in meadow, in garden | |
showing | zeigt zeigen | people | pictures, papers, garden, horse | people | | |
bringing | bringt bringen | people | food, flower, papers, umbrella | people | | | quickly
selling | verkauft verkaufen | adults | vehicles, food, pictures | adults | at market, in town | |
lending | leiht leihen | people | bicycle, umbrella, book, bag | people | | |
telling | erzählt erzählen | adults | story | people | on sofa, in garden, in school | | quietly
reading | liest lesen vor | people | story, letter, book | children | in bed, on sofa, in school, in
    library | | slowly
throwing | wirft werfen zu | people | ball | people, dog | in garden, in park, on beach | |
walking | geht gehen | people | | | | through park, across bridge, to station, to market, around lake, into
    church, out of house | slowly, quickly
running | läuft laufen | people, pets | | | | into garden, across street, through park, around house, to
    school, over bridge | quickly, happily
running | läuft laufen | cattle | | | | through forest, across field, around tree, into garden | quickly
jumping | springt springen | people, dog | | | | into lake, over fence, over wall, onto bed, into river,
    out of boat | quickly, happily
climbing | klettert klettern | children, cat, monkey | | | | onto roof, over wall, over fence, onto table |
    slowly, carefully
riding | reitet reiten | people | | | | through forest, across field, around lake, to beach, across meadow
    | slowly, quickly
swimming | schwimmt schwimmen | people, dog, duck | | | | across lake, across river, to boat, under bridge
    | slowly, quickly
flying | fliegt fliegen | bird, duck | | | | over house, onto roof, over lake, across river, into forest,
    over tree | slowly
driving | fährt fahren | adults, car, bus, lorry | | | | into town, through forest, across bridge, to
    station, to beach | slowly, quickly
getting | steigt steigen ein | people | | | | into car, into bus, into boat | slowly, quickly
getting | steigt steigen aus | people | | | | out of car, out of bus, out of boat | slowly, quickly
carrying | trägt tragen | people | box, belongings, chair, doll | | | into house, across street, to
    station, through garden | slowly, carefully
pushing | schiebt schieben | people | bicycle, car | | | across bridge, through park, across street, to
    station | slowly
throwing | wirft werfen | people | ball, stone | | | into lake, over wall, over fence, into river | quickly
putting | stellt stellen | people | dishes, lamp | | | on table, on shelf, next to bed, next to sofa |
    carefully, quietly
putting | legt legen | people | papers, pictures, food, toys | | | on table, on bed, into bag, into box, on
    chair | carefully, quickly
hanging | hängt hängen | people | pictures | | | over sofa, over bed, next to window, over shelf | carefully
lying | liegt liegen | papers, toys, clothes, headgear | | | on table, under bed, on chair, next to bag | |
standing | steht stehen | dishes, lamp | | | on table, on shelf, next to bed, at window | |
standing | steht stehen | vehicles | | | in front of house, in street, behind church, next to tree | |
hanging | hängt hängen | pictures | | | over sofa, over bed, next to window, in kitchen | |
falling | fällt fallen | dishes, papers, ball | | | | from table, from chair, from shelf |
""")
